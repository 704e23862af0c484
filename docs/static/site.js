// What scrolls can be reached by keyboard, and only that.
function letScrollersBeReached() {
  for (const box of document.querySelectorAll("pre, .table-wrapper, .text_html")) {
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
