// Drawing by hand: elements of SVG, and round numbers for an axis.

const SPACE = "http://www.w3.org/2000/svg";

/** An element with attributes; children are elements or texts. */
export function draw(name, attributes = {}, ...children) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A figure of a size in pixels, which a screen reader hears as one sentence. */
export function figure(width, height, told, ...children) {
  const view = { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" };
  return draw("svg", { ...view, "aria-label": told, class: "figure" }, ...children);
}

/** A linear scale: a function from a range of numbers to a range of pixels. */
export const scale =
  ([from, to], [start, end]) =>
  (value) =>
    start + ((value - from) / (to - from)) * (end - start);

/** Round numbers between two numbers, about `count` of them. */
export function ticks(from, to, count) {
  const rough = (to - from) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((one) => one * power >= rough * 0.999) * power;
  const found = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to + step * 1e-9; at += 1) {
    found.push(Number((at * step).toPrecision(12)));
  }
  return found;
}
