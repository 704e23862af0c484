Reveal.initialize({
  width: 1280,
  height: 720,
  margin: 0.04,
  center: true,
  controls: false,
  hash: true,
  slideNumber: "c/t",
  transition: "none",
});
