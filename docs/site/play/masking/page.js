// The page of lesson 02: a sentence is masked again and again, and the counts fill their band.

import { WordPiece } from "../../fill_the_blank/page/wordpiece.js";
import { draw, figure, scale, ticks } from "../svg.js";
import { bandOf, chancesOf, inside } from "./band.js";
import {
  IGNORE, MASK_SHARE, RANDOM_SHARE, SPECIAL_TOKENS, countChosen, drawOf, mask, randomOf,
  unitsOf,
} from "./rules.js";

const { characters, passage } = globalThis.COURSE;
const vocabulary = globalThis.COURSE.vocabulary.split("\n");
const EXAMPLES = {
  "a film, in a few words":
    "The plot was thin, but the acting was wonderful, and the storytelling unforgettable.",
  "the sentence of the lesson": "the plot was thin , but the acting was wonderful .",
  "four long words of the lesson": "unforgettable storytelling, shamelessly sentimental",
  "the paragraph of the lesson": passage,
};
const NAMES = { mask: "[MASK]", random: "random", kept: "kept" };
const SHARES = { mask: MASK_SHARE, random: RANDOM_SHARE };
SHARES.kept = 1 - SHARES.mask - SHARES.random;
const PATIENCE = 150; // milliseconds without a key, after which the text is read
const MORE = 100; // draws at the press of a button
const A_FRAME = 4; // of them in each frame, so that one sees how they fill the band

const get = (id) => document.getElementById(id);
const plural = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
const percent = (share) => `${(100 * share).toFixed(1)}%`;
const signed = (number) => number.toFixed(1).replace("-", "−");
const is = (count) => (count === 1 ? "is" : "are");
const element = (name, className, text = "") => {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
};

export class Page {
  constructor() {
    this.tokenizer = new WordPiece(vocabulary, characters);
    this.ordinary = vocabulary.flatMap((token, id) => (SPECIAL_TOKENS.includes(token) ? [] : [id]));
    this.maskId = this.tokenizer.ids.get("[MASK]");
    get("size").textContent = vocabulary.length.toLocaleString("en");
    for (const [name, text] of Object.entries(EXAMPLES)) {
      get("examples").add(new Option(name, text));
    }
    get("text").value = get("examples").value;
    this.listen();
    this.restart();
  }

  listen() {
    let waiting;
    get("text").addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.restart(), PATIENCE);
    });
    get("examples").addEventListener("change", () => {
      get("text").value = get("examples").value;
      this.restart();
    });
    get("words").addEventListener("change", () => this.restart());
    get("rate").addEventListener("input", () => this.recount());
    get("again").addEventListener("click", () => this.drawMore(1));
    get("many").addEventListener("click", () => this.fill());
    window.addEventListener("resize", () => this.show());
  }

  get rate() {
    return Number(get("rate").value) / 100;
  }

  /** Another text, or other units: begin with the first draw. */
  restart() {
    const tokens = this.tokenizer.tokenize(get("text").value);
    this.tokens = ["[CLS]", ...tokens, "[SEP]"];
    this.ids = this.tokenizer.encode(tokens);
    this.units = unitsOf(this.tokens, get("words").checked);
    this.draws = 1;
    this.filling = 0;
    this.recount();
  }

  /** The counts of all draws so far, at the rate that the slider shows now. */
  recount() {
    this.counts = new Map();
    for (let number = 1; number <= this.draws; number += 1) this.count(number);
    this.show();
  }

  count(number) {
    const count = countChosen(this.units, this.rate, randomOf(number));
    this.counts.set(count, (this.counts.get(count) ?? 0) + 1);
  }

  drawMore(many) {
    for (let left = many; left > 0; left -= 1) this.count((this.draws += 1));
    this.show();
  }

  /** Many draws, a few in each frame; all at once for those who do not want motion. */
  fill() {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.drawMore(MORE);
      return;
    }
    const idle = !this.filling;
    this.filling += MORE;
    const frame = () => {
      if (!this.filling) return; // another text came
      this.drawMore(Math.min(A_FRAME, this.filling));
      this.filling = Math.max(0, this.filling - A_FRAME);
      if (this.filling) requestAnimationFrame(frame);
    };
    if (idle) frame();
  }

  show() {
    get("rate-shown").textContent = `${get("rate").value}%`;
    get("drawn").hidden = !this.units.length;
    for (const id of ["again", "many"]) get(id).disabled = !this.units.length;
    if (!this.units.length) {
      get("status").textContent = "Write a word or more, so that there are tokens to choose from.";
      return;
    }
    const { numbers, pick } = drawOf(
      this.units, this.ids.length, this.ordinary, randomOf(this.draws),
    );
    const options = { rate: this.rate, maskId: this.maskId, pick };
    this.drawn = { numbers, ...mask(this.ids, this.units, numbers, options) };
    this.band = bandOf(this.units.map((positions) => positions.length), this.rate);
    this.tell();
    this.showTokens();
    this.showLine();
    this.showCounts();
    this.showBand();
  }

  number(fate) {
    return this.drawn.fates.filter((one) => one === fate).length;
  }

  tell() {
    const [masked, random, kept] = Object.keys(NAMES).map((fate) => this.number(fate));
    const chosen = masked + random + kept;
    const fates = chosen
      ? ` ${masked} ${masked === 1 ? "becomes" : "become"} [MASK], ${random} ` +
        `${random === 1 ? "becomes" : "become"} a random token, and ${kept} ${is(kept)} kept.`
      : "";
    get("status").textContent =
      `Draw ${this.draws}: ${chosen} of ${plural(this.band.open, "token")} ` +
      `${is(chosen)} chosen.${fates}`;
  }

  showTokens() {
    const { fates, read, labels } = this.drawn;
    get("tokens").replaceChildren(
      ...this.tokens.map((token, at) => {
        const fate = fates[at];
        const card = element("li", `card ${fate ?? ""}`);
        card.append(
          element("span", "token-name", token),
          element("span", "unseen", ", the model reads "),
          element("span", "reads", vocabulary[read[at]]),
          element("span", "unseen", ", label "),
          element("span", "label", labels[at] === IGNORE ? "−100" : String(labels[at])),
        );
        if (fate === "random" || fate === "kept") card.append(element("span", "fate", NAMES[fate]));
        return card;
      }),
    );
  }

  showLine() {
    const unit = get("words").checked ? "word" : "token";
    for (const place of document.querySelectorAll(".unit")) place.textContent = unit;
    const borders = [MASK_SHARE, MASK_SHARE + RANDOM_SHARE, 1].map((share) =>
      (share * this.rate).toFixed(3),
    );
    get("line-text").textContent =
      `Each ${unit} has drawn one number between 0 and 1, a short stroke on this line. Below ` +
      `${borders[2]} the ${unit} is chosen: below ${borders[0]} it becomes [MASK], from there to ` +
      `${borders[1]} it is replaced, and from there to ${borders[2]} it is kept. If you move the ` +
      "slider, the borders move and the numbers stay.";
    const width = Math.max(260, get("line").clientWidth);
    const x = scale([0, 1], [8, width - 8]);
    const parts = [];
    let from = 0;
    for (const fate of Object.keys(NAMES)) {
      const to = from + SHARES[fate] * this.rate;
      const size = { x: x(from), y: 18, width: x(to) - x(from), height: 26 };
      parts.push(draw("rect", { ...size, class: `part ${fate}` }));
      from = to;
    }
    parts.push(draw("rect", { x: x(0), y: 18, width: x(1) - x(0), height: 26, class: "frame" }));
    for (const u of this.drawn.numbers) {
      const chosen = u < this.rate ? "chosen" : "";
      parts.push(draw("line", { x1: x(u), x2: x(u), y1: 10, y2: 52, class: `stroke ${chosen}` }));
    }
    for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
      parts.push(draw("text", { x: x(tick), y: 68, "text-anchor": "middle" }, String(tick)));
    }
    const chosen = this.drawn.numbers.filter((u) => u < this.rate).length;
    const told =
      `${plural(this.units.length, "number")} on a line from 0 to 1; ${chosen} of them below ` +
      `${this.rate}.`;
    get("line").replaceChildren(figure(width, 74, told, ...parts));
  }

  showCounts() {
    const chosen = this.ids.length - this.number(null);
    const row = (name, count, expected, className) => {
      const made = element("tr", className);
      const head = element("th", "", name);
      head.scope = "row";
      made.append(head, element("td", "", String(count)), element("td", "", expected.toFixed(1)));
      return made;
    };
    // As in the lesson: of this draw's chosen tokens so many should have each fate.
    get("counts").tBodies[0].replaceChildren(
      row("chosen", chosen, this.band.mean, "total"),
      ...Object.entries(NAMES).map(([fate, name]) =>
        row(name, this.number(fate), chosen * SHARES[fate], fate),
      ),
      row("not chosen", this.band.open - chosen, this.band.open - this.band.mean, ""),
    );
  }

  showBand() {
    const { open, mean, deviation, low, high } = this.band;
    const words = get("words").checked;
    const ends = [Math.max(0, low), Math.min(open, high)];
    const chances = chancesOf(this.units.map((positions) => positions.length), this.rate);
    const exact = chances.reduce(
      (sum, chance, count) => sum + (inside(count, this.band) ? chance : 0), 0,
    );
    const what = words
      ? `${plural(open, "token")} in ${plural(this.units.length, "word")} may be chosen, each ` +
        `word with probability ${this.rate}. The tokens of a word are chosen together. `
      : `${plural(open, "token")} may be chosen, each with probability ${this.rate}. `;
    get("band-text").textContent =
      `${what}So ${mean.toFixed(1)} chosen tokens are expected, with a standard deviation of ` +
      `${deviation.toFixed(2)}. The sampling band is the range of 1.96 standard deviations ` +
      `around that: from ${ends[0].toFixed(1)} to ${ends[1].toFixed(1)} tokens, which is a share ` +
      `of ${percent(ends[0] / open)} to ${percent(ends[1] / open)}. ` +
      (low < 0 ? `By the formula it begins at ${signed(low)}, but no count is below 0. ` : "") +
      `Chance puts ${percent(exact)} of all draws of this text into the band.`;

    let within = 0;
    for (const [count, times] of this.counts) if (inside(count, this.band)) within += times;
    get("inside").textContent =
      this.draws === 1
        ? `So far there is one draw, and it is ${within ? "inside" : "outside"} the band.`
        : `Of ${this.draws.toLocaleString("en")} draws, ${within.toLocaleString("en")} ` +
          `(${percent(within / this.draws)}) are inside the band.`;
    get("band").replaceChildren(this.histogram(chances, ends));
  }

  /** How often each count was drawn, over the band; a short line where it should be by chance. */
  histogram(chances, [low, high]) {
    const { open, mean, deviation } = this.band;
    const width = Math.max(260, get("band").clientWidth);
    const [height, left, bottom] = [230, 34, 46];
    const drawn = [...this.counts.keys()];
    const first = Math.max(0, Math.min(Math.floor(mean - 4 * deviation - 1), ...drawn));
    const last = Math.min(open, Math.max(Math.ceil(mean + 4 * deviation + 1), ...drawn));
    const most = Math.max(...this.counts.values(), ...chances.map((chance) => chance * this.draws));
    const x = scale([first - 0.5, last + 0.5], [left, width - 6]);
    const y = scale([0, most * 1.05], [height - bottom, 12]);
    const now = this.ids.length - this.number(null);
    const half = Math.max(1, 0.4 * (x(1) - x(0)));
    const base = height - bottom;
    const area = { x: x(low), y: 12, width: Math.max(1, x(high) - x(low)), height: base - 12 };
    const parts = [
      draw("rect", { ...area, class: "band" }),
      draw("line", { x1: x(mean), x2: x(mean), y1: 12, y2: base, class: "mean" }),
    ];
    for (let count = first; count <= last; count += 1) {
      const times = this.counts.get(count) ?? 0;
      const where = inside(count, this.band) ? "" : "outside";
      const box = { x: x(count) - half, y: y(times), width: 2 * half, height: y(0) - y(times) };
      if (times) parts.push(draw("rect", { ...box, class: `bar ${where}` }));
      const level = y(chances[count] * this.draws);
      const across = { x1: x(count) - half, x2: x(count) + half, y1: level, y2: level };
      parts.push(draw("line", { ...across, class: "expected" }));
    }
    parts.push(draw("line", { x1: left, x2: width - 6, y1: base, y2: base, class: "axis" }));
    for (const tick of ticks(first, last, Math.min(10, width / 45)).filter(Number.isInteger)) {
      parts.push(draw("text", { x: x(tick), y: base + 21, "text-anchor": "middle" }, String(tick)));
    }
    for (const tick of ticks(0, most, 4).filter(Number.isInteger)) {
      parts.push(draw("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, String(tick)));
    }
    parts.push(draw("path", { d: `M${x(now)} ${base + 1} l-5 8 h10 z`, class: "now" }));
    const axis = `chosen tokens (▲ this draw, ${now})`;
    const below = { x: (left + width) / 2, y: height - 6, "text-anchor": "middle" };
    parts.push(draw("text", below, axis));
    const told =
      `How often each number of chosen tokens was drawn, in ${plural(this.draws, "draw")}. The ` +
      `band reaches from ${low.toFixed(1)} to ${high.toFixed(1)} tokens. This draw has ${now}.`;
    return figure(width, height, told, ...parts);
  }
}

globalThis.page = new Page();
