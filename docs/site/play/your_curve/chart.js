// The curve as a picture: the log, the held-out loss, and the lines that they are compared with.

import { draw, figure, scale, ticks } from "../svg.js";

const [TOP, BOTTOM, LEFT] = [16, 44, 40]; // pixels around the axes
const [NARROW, SHORT, LONG] = [600, 62, 126]; // below this width the names have no numbers
const [HIGHEST, APART] = [3, 15]; // times ln V, above which nothing is drawn; pixels between names

/**
 * Draw a curve.
 * @param {number} width in pixels.
 * @param {number[][]} training points [step, loss].
 * @param {Object<string, number[][]>} heldOut the same, by name.
 * @param {Array<[string, number]>} lines the names and the nats of horizontal lines.
 */
export function drawCurve(width, training, heldOut, lines) {
  const narrow = width < NARROW;
  const right = narrow ? SHORT : LONG; // room for the names of the lines
  const height = Math.round(Math.min(420, Math.max(280, 0.5 * width)));
  const all = [training, ...Object.values(heldOut)].flat();
  const finite = all.filter(([, loss]) => Number.isFinite(loss));
  const [lnV] = lines.map(([, nats]) => nats);
  const top = Math.max(...lines.map(([, nats]) => nats), ...finite.map(([, loss]) => loss));
  const limit = Math.min(top * 1.08, HIGHEST * lnV);
  const low = Math.min(0, ...finite.map(([, loss]) => loss));
  const [first, last] = [Math.min(0, all[0][0]), Math.max(...all.map(([step]) => step), 1)];
  const x = scale([first, last], [LEFT, width - right]);
  const y = scale([low, limit], [height - BOTTOM, TOP]);
  const parts = [];

  for (const tick of ticks(low, limit, 6)) {
    const at = y(tick);
    parts.push(draw("line", { x1: LEFT, x2: width - right, y1: at, y2: at, class: "grid" }));
    const where = { x: LEFT - 6, y: at + 4, "text-anchor": "end" };
    parts.push(draw("text", where, String(tick)));
  }
  for (const tick of ticks(first, last, Math.max(3, width / 110))) {
    const where = { x: x(tick), y: height - BOTTOM + 17, "text-anchor": "middle" };
    parts.push(draw("text", where, tick.toLocaleString("en")));
  }
  const base = height - BOTTOM;
  parts.push(draw("line", { x1: LEFT, x2: width - right, y1: base, y2: base, class: "axis" }));
  const below = { x: (LEFT + width - right) / 2, y: height - 6, "text-anchor": "middle" };
  parts.push(draw("text", below, "step"));
  parts.push(draw("text", { x: 2, y: 11 }, "nats"));

  const inFrame = lines.filter(([, nats]) => nats <= limit);
  for (const [, nats] of inFrame) {
    const across = { x1: LEFT, x2: width - right, y1: y(nats), y2: y(nats) };
    parts.push(draw("line", { ...across, class: "landmark" }));
  }

  const paths = [[training, "training"], ...Object.values(heldOut).map((one) => [one, "held"])];
  for (const [points, className] of paths) {
    parts.push(draw("path", { d: pathOf(points, x, y, limit), class: `curve ${className}` }));
    const dots = className === "held" || points.length < 3 ? points : [];
    for (const [step, loss] of dots.length > 200 ? [] : dots) {
      if (!(loss <= limit)) continue;
      parts.push(draw("circle", { cx: x(step), cy: y(loss), r: 3, class: `dot ${className}` }));
    }
    for (const [step, loss] of points) {
      if (Number.isFinite(loss)) continue;
      const cross = `M${x(step) - 4} ${TOP} l8 8 m0 -8 l-8 8`;
      parts.push(draw("path", { d: cross, class: "broken" }));
    }
  }
  let above = -Infinity;
  for (const [name, nats] of [...inFrame].sort((a, b) => b[1] - a[1])) {
    const at = Math.max(y(nats) + 4, above + APART);
    above = at;
    const text = narrow ? name.replace(" line", "") : `${name} ${nats.toFixed(2)}`;
    parts.push(draw("text", { x: width - right + 6, y: at }, text));
  }
  return figure(width, height, told(training, heldOut, lines), ...parts);
}

function pathOf(points, x, y, limit) {
  let [path, pen] = ["", "M"];
  for (const [step, loss] of points) {
    if (!Number.isFinite(loss)) {
      pen = "M";
      continue;
    }
    path += `${pen}${x(step).toFixed(1)} ${y(Math.min(loss, limit)).toFixed(1)}`;
    pen = "L";
  }
  return path;
}

/** The picture in words. */
function told(training, heldOut, lines) {
  const say = (name, points) => {
    const finite = points.filter(([, loss]) => Number.isFinite(loss));
    if (!finite.length) return "";
    const [first, last] = [finite[0], finite.at(-1)];
    return (
      `${name} goes from ${first[1].toFixed(2)} at step ${first[0]} to ${last[1].toFixed(2)} at ` +
      `step ${last[0]}. `
    );
  };
  const curves = Object.entries(heldOut).map(([name, points]) => say(name, points));
  const marks = lines.map(([name, nats]) => `${name} at ${nats.toFixed(2)}`).join(", ");
  return `${say("The loss in the log", training)}${curves.join("")}Lines: ${marks}.`;
}
