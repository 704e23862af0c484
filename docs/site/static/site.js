// What scrolls can be reached by keyboard, and only that.
function letScrollersBeReached() {
  for (const box of document.querySelectorAll("pre, .table-wrapper, .text_html, .math-wrapper")) {
    if (box.scrollWidth > box.clientWidth) {
      box.tabIndex = 0;
    } else {
      box.removeAttribute("tabindex");
    }
  }
}
window.addEventListener("load", letScrollersBeReached);
window.addEventListener("resize", letScrollersBeReached);
document.addEventListener("toggle", letScrollersBeReached, true); // an answer was opened

// In a folder that was opened without a server, pages cannot be read for the lines around a hit.
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}

// A question: each option becomes a button, which tells at once whether it is right, and why.
function letOptionsAnswer(box) {
  const [options, key] = box.querySelectorAll("ol");
  const reasons = [...key.children];
  [...options.children].forEach((option, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...option.firstElementChild.childNodes);
    const told = document.createElement("div");
    told.setAttribute("role", "status");
    button.addEventListener("click", () => {
      option.classList.add("told");
      told.replaceChildren(...reasons[place].cloneNode(true).childNodes);
    });
    option.replaceChildren(button, told);
  });
  box.querySelector("details").remove();
}
document.querySelectorAll("fieldset.quiz").forEach(letOptionsAnswer);

// ---- figures
// A figure that is shown smaller than it was drawn can be enlarged, so that its words can be read.
const enlarged = document.createElement("dialog");
enlarged.className = "enlarged";
enlarged.setAttribute("aria-label", "The figure in its full size");
enlarged.innerHTML = '<form method="dialog"><button>Close</button></form><div tabindex="0"></div>';
enlarged.addEventListener("click", (event) => event.target === enlarged && enlarged.close());

// Whether a figure is shown smaller is known when it is shown: it may be in an answer that is closed.
const sizes = new ResizeObserver((seen) => {
  for (const { target: image } of seen) {
    image.parentElement.classList.toggle("small", image.width && image.width < image.naturalWidth);
  }
});

function letItBeEnlarged(image) {
  const figure = document.createElement("span");
  const button = document.createElement("button");
  figure.className = "figure";
  button.type = "button";
  button.textContent = "Enlarge the figure";
  image.replaceWith(figure);
  figure.append(image, button);
  button.addEventListener("click", () => {
    enlarged.lastElementChild.replaceChildren(image.cloneNode());
    button.focus({ preventScroll: true }); // where the focus comes back to, after a tap on the figure
    enlarged.showModal();
  });
  image.addEventListener("click", () => figure.classList.contains("small") && button.click());
  sizes.observe(image);
}
document.body.append(enlarged);
document.querySelectorAll("article img").forEach(letItBeEnlarged);

// ---- folded sections ---------------------------------------------------------------------------

// A link to a section opens its fold, and every fold around its place.
function openWhatIsLinked() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const own = target.closest("section")?.querySelector(":scope > details.fold");
  const around = [];
  for (let box = target; box; box = box.parentElement) {
    if (box.localName === "details") around.push(box);
  }
  const closed = [...around, ...(own ? [own] : [])].filter((fold) => !fold.open);
  for (const fold of closed) fold.open = true;
  if (closed.length) target.scrollIntoView({ behavior: "instant" });
}

// Sphinx marks the words of a search ten milliseconds after the page is read.
function openWhatWasSearched() {
  for (const word of document.querySelectorAll("details.fold .highlighted")) {
    word.closest("details.fold").open = true;
  }
}

function offerToOpenAll(folds) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "open-folds";
  const tell = () => {
    const closed = folds.some((fold) => !fold.open);
    button.textContent = closed ? "Open all sections" : "Close all sections";
  };
  button.addEventListener("click", () => {
    const open = folds.some((fold) => !fold.open);
    for (const fold of folds) fold.open = open;
  });
  for (const fold of folds) fold.addEventListener("toggle", tell);
  tell();
  folds[0].closest("section").before(button);
}

const folds = [...document.querySelectorAll("details.fold")];
if (folds.length) {
  offerToOpenAll(folds);
  openWhatIsLinked();
  window.addEventListener("hashchange", openWhatIsLinked);
  window.addEventListener("load", () => setTimeout(openWhatWasSearched, 20));
  window.addEventListener("beforeprint", () => {
    for (const fold of folds) fold.open = true;
  });
}

// ---- what has been done in this browser --------------------------------------------------------

// The names of the lessons that are done, or null where the browser keeps nothing for this page.
const DONE = "mlm-course-done";
function readDone() {
  try {
    const stored = JSON.parse(localStorage.getItem(DONE) ?? "[]");
    return new Set(Array.isArray(stored) ? stored : []);
  } catch (error) {
    return error instanceof SyntaxError ? new Set() : null;
  }
}

const nameOf = (link) => link.pathname.match(/\/notebooks\/\d\d_(\w+)\.html$/)?.[1];

function showDone() {
  const done = readDone();
  if (!done) return;
  for (const mark of document.querySelectorAll(".done-mark")) mark.remove();
  for (const link of document.querySelectorAll(".sidebar-tree a.internal, .lesson-map a")) {
    if (!done.has(nameOf(link))) continue;
    const mark = document.createElement("span");
    mark.className = "done-mark";
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", "done");
    mark.textContent = "✓";
    link.append(mark);
  }
  const map = document.querySelector(".lesson-map");
  if (map) tellWhereOneIs(map, done);
}

// Under the map: how many lessons are done, and the first one that is not.
function tellWhereOneIs(map, done) {
  const lessons = [...map.querySelectorAll("a")];
  const left = lessons.filter((link) => !done.has(nameOf(link)));
  const count = lessons.length - left.length;
  map.querySelector(".you-are-here")?.remove();
  if (!count) return;
  const here = document.createElement("p");
  here.className = "you-are-here";
  here.append(`You have marked ${count} of ${lessons.length} lessons as done in this browser. `);
  if (left.length) {
    const next = document.createElement("a");
    next.href = left[0].href;
    next.textContent = `lesson ${left[0].querySelector(".number").textContent}`;
    here.append("Go on with ", next, ".");
  } else {
    here.append("That is the whole course.");
  }
  map.prepend(here);
}

function offerToMark(place) {
  if (!readDone()) return;
  const button = document.createElement("button");
  const note = document.createElement("small");
  const { lesson } = place.dataset;
  button.type = "button";
  note.setAttribute("role", "status");
  const tell = () => {
    const marked = readDone().has(lesson);
    button.textContent = marked ? "Remove the mark" : "Mark this lesson as done";
    note.textContent = marked
      ? "✓ This lesson is done. The mark is kept in this browser alone."
      : "The mark is shown in the list of lessons, and is kept in this browser alone.";
  };
  button.addEventListener("click", () => {
    const done = readDone();
    if (!done.delete(lesson)) done.add(lesson);
    try {
      localStorage.setItem(DONE, JSON.stringify([...done]));
    } catch {
      note.textContent = "This browser does not let the page keep a mark.";
      return;
    }
    tell();
    showDone();
  });
  tell();
  place.append(button, note);
  place.hidden = false;
}

document.querySelectorAll(".mark-done").forEach(offerToMark);
showDone();
window.addEventListener("storage", showDone); // marked in another tab
window.addEventListener("pageshow", (event) => event.persisted && showDone());
