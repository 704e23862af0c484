// The theme that was chosen on the course's pages holds here as well. It must run before the page
// is drawn, so it is a script of its own in the head.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that allows no storage follows the system.
}
