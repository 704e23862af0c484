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
