// The sentence as a row of words that can be selected, moved and hidden: by drag, button or key.

import { MASK } from "./wordpiece.js";

const DRAGGED = 6; // pixels after which a press is a drag
let next = 0;

const SPECIAL = /(\[(?:PAD|UNK|CLS|SEP|MASK)\])/;
const ENDS = /^([!-/:-@[-`{-~]*)(.*?)([!-/:-@[-`{-~]*)$/s; // ASCII punctuation around the rest

/**
 * The words of a text, each with a key of its own, and punctuation at their ends for itself.
 * Joined by blanks they have the tokens of the text. `originals` are the words without blanks.
 */
export function wordsOf(text, originals = []) {
  const found = [];
  text.split(SPECIAL).forEach((part, at) => {
    if (at % 2) {
      found.push(part);
      return;
    }
    for (const chunk of part.split(/[ \t\n\r]+/)) {
      const [, before, middle, after] = chunk.match(ENDS);
      found.push(...before, ...(middle ? [middle] : []), ...after);
    }
  });
  return found.map((word, at) => {
    const was = word === MASK ? (originals[at] ?? null) : null;
    return { key: (next += 1), word, was };
  });
}

export const textOf = (words) => words.map(({ word }) => word).join(" ");

export class Strip {
  /** `changed(words)` is called when a word was moved, hidden or shown. */
  constructor(root, changed) {
    this.list = root.querySelector("#words");
    this.say = root.querySelector("#moved");
    this.buttons = {
      left: root.querySelector("#move-left"),
      right: root.querySelector("#move-right"),
      hide: root.querySelector("#hide"),
    };
    this.changed = changed;
    this.words = [];
    this.selected = null; // a key
    this.buttons.left.addEventListener("click", () => this.move(this.at(), this.at() - 1));
    this.buttons.right.addEventListener("click", () => this.move(this.at(), this.at() + 1));
    this.buttons.hide.addEventListener("click", () => this.toggle());
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("pointerdown", (event) => this.press(event));
    this.list.addEventListener("click", (event) => {
      const chip = event.target.closest("button");
      if (chip) this.select(Number(chip.dataset.key));
    });
  }

  at() {
    return this.words.findIndex(({ key }) => key === this.selected);
  }

  show(words) {
    this.words = words;
    if (this.at() < 0) this.selected = null;
    this.draw();
  }

  draw() {
    const focused = this.list.contains(document.activeElement)
      ? Number(document.activeElement.dataset.key)
      : null;
    const tabbed = this.selected ?? this.words[0]?.key;
    this.list.replaceChildren(
      ...this.words.map(({ key, word }) => {
        const item = document.createElement("li");
        const chip = document.createElement("button");
        chip.type = "button";
        chip.dataset.key = key;
        chip.textContent = word;
        chip.tabIndex = key === tabbed ? 0 : -1;
        chip.className = word === MASK ? "word blank" : "word";
        chip.setAttribute("aria-pressed", String(key === this.selected));
        item.append(chip);
        return item;
      }),
    );
    if (focused !== null) this.chip(focused)?.focus();
    const at = this.at();
    const { word, was } = this.words[at] ?? {};
    this.buttons.left.disabled = at < 1;
    this.buttons.right.disabled = at < 0 || at === this.words.length - 1;
    this.buttons.hide.disabled = at < 0 || (word === MASK && was === null);
    this.buttons.hide.textContent = word === MASK ? "Show the word" : "Hide the word";
  }

  chip(key) {
    return this.list.querySelector(`[data-key="${key}"]`);
  }

  select(key) {
    this.selected = key;
    this.draw();
  }

  move(from, to) {
    if (from < 0 || to < 0 || to >= this.words.length || from === to) return;
    const words = [...this.words];
    const [word] = words.splice(from, 1);
    words.splice(to, 0, word);
    this.words = words;
    this.selected = word.key;
    this.draw();
    this.say.textContent = `${word.word} is now word ${to + 1} of ${words.length}.`;
    this.changed(words);
  }

  toggle() {
    const at = this.at();
    const { key, word, was } = this.words[at];
    const other = word === MASK ? { key, word: was, was: null } : { key, word: MASK, was: word };
    this.words = this.words.map((one, place) => (place === at ? other : one));
    this.draw();
    this.say.textContent = word === MASK ? `${was} is shown.` : `${word} is hidden.`;
    this.changed(this.words);
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const at = this.words.findIndex(({ key }) => key === Number(event.target.dataset.key));
    if (!step || at < 0) return;
    event.preventDefault();
    if (event.shiftKey) {
      this.move(at, at + step);
      return;
    }
    const word = this.words[at + step];
    if (!word) return;
    this.select(word.key);
    this.chip(word.key).focus();
  }

  press(event) {
    const chip = event.target.closest("button");
    if (!chip || event.button !== 0) return;
    const [x, y] = [event.clientX, event.clientY];
    const key = Number(chip.dataset.key);
    let over = null; // where it would go
    const moved = (now) => {
      if (over === null && Math.hypot(now.clientX - x, now.clientY - y) < DRAGGED) return;
      chip.classList.add("dragged");
      over = this.nearest(now.clientX, now.clientY);
      for (const other of this.list.querySelectorAll("button")) {
        other.classList.toggle("target", Number(other.dataset.key) === this.words[over].key);
      }
    };
    const ended = (end) => {
      window.removeEventListener("pointermove", moved);
      window.removeEventListener("pointerup", ended);
      window.removeEventListener("pointercancel", ended);
      const target = over;
      if (target === null) return; // a click, which selects
      this.draw();
      if (end.type === "pointerup") {
        this.move(this.words.findIndex((word) => word.key === key), target);
      }
    };
    window.addEventListener("pointermove", moved);
    window.addEventListener("pointerup", ended);
    window.addEventListener("pointercancel", ended);
  }

  /** The place of the word nearest to a point. */
  nearest(x, y) {
    const far = [...this.list.querySelectorAll("button")].map((chip) => {
      const box = chip.getBoundingClientRect();
      const aside = Math.max(box.left - x, 0, x - box.right);
      return aside + 4 * Math.max(box.top - y, 0, y - box.bottom); // its own line first
    });
    return far.indexOf(Math.min(...far));
  }
}
