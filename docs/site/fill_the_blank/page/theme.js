// The theme that the reader chose on the site, which keeps the choice in localStorage. Without a
// choice the theme is that of the device. A plain script, so that it runs before the page is drawn.
function followTheSite() {
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // This browser keeps nothing for the page.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
}

followTheSite();
window.addEventListener("storage", followTheSite); // chosen in another tab
window.addEventListener("pageshow", followTheSite); // gone back to
