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
