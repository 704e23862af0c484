// Where a slide goes on, it says of what: the heading of its section, in small letters.
for (const section of document.querySelectorAll(".slides > section")) {
  const heading = section.querySelector("h2");
  for (const slide of [...section.children].slice(1)) {
    if (heading && !slide.querySelector("h2")) {
      const told = document.createElement("p");
      told.className = "goes-on";
      told.innerHTML = heading.innerHTML;
      slide.prepend(told);
    }
  }
}

// The notes plugin shows only the first notes of a fragment, so all of them go into the first.
for (const fragment of document.querySelectorAll(".fragment")) {
  const [first, ...others] = fragment.querySelectorAll("aside.notes");
  for (const notes of others) first.append(...notes.childNodes);
}

const HEIGHT = 720;

// Letters with which the longest line of code or of an output is on the slide. A letter is 0.61 of
// its size wide. Lines that would need letters below 16 px are broken.
function fitWidth(block, letters) {
  const longest = Math.max(...block.textContent.split("\n").map((line) => line.length));
  const size = Math.floor(1230 / (0.61 * longest));
  block.style.fontSize = `${size < 16 ? 0.9 * letters : Math.min(letters, size)}px`;
  block.style.whiteSpace = size < 16 ? "pre-wrap" : "pre";
}

// Formulas and tables are not broken.
function isWide(slide) {
  const right = slide.getBoundingClientRect().right + 1;
  const wide = (one) => one.getBoundingClientRect().right > right;
  return [...slide.querySelectorAll("math, table")].some(wide);
}

// The largest letters, and then the largest figure, with which a slide is on the screen.
function fit(slide) {
  for (let letters = 36; letters >= 20; letters -= 1) {
    slide.style.fontSize = `${letters}px`;
    for (const block of slide.querySelectorAll("pre")) fitWidth(block, letters * 0.8);
    const least = letters > 28 ? 480 : letters > 24 ? 400 : 260;
    for (let figure = 620; figure >= least; figure -= 20) {
      slide.style.setProperty("--figure", `${figure}px`);
      if (slide.scrollHeight <= HEIGHT && !isWide(slide)) return;
    }
  }
}

// A slide has no size before it is shown, and another one when its letters have been loaded.
const sizes = new ResizeObserver((changed) => {
  requestAnimationFrame(() => changed.map((one) => one.target).filter(isShown).forEach(fit));
});
const isShown = (slide) => slide.clientHeight > 0;
Reveal.on("ready", () => Reveal.getSlides().forEach((slide) => sizes.observe(slide)));

Reveal.initialize({
  width: 1280,
  height: HEIGHT,
  margin: 0.04,
  center: false,
  controls: false,
  hash: true,
  navigationMode: "linear",
  plugins: [RevealNotes],
  slideNumber: "c/t",
  transition: "none",
});
