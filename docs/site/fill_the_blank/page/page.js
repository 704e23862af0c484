// The page: a text in, what the model expects at its blanks out. Everything runs in this browser.

import { Attention } from "./attention.js";
import { drawBars, percent } from "./bars.js";
import { Model, softmax } from "./model.js";
import { Strip, textOf, wordsOf } from "./strip.js";
import { MASK, WordPiece } from "./wordpiece.js";
import { Writing } from "./writing.js";

const PATIENCE = 150; // milliseconds without a key, after which the model is asked
const EXACT =
  "A document that the grammar can say has an exact answer: what a reader expects who knows the " +
  "grammar. On average over its documents no model can do better.";
const KNOWN =
  "The grammar's own probabilities, given all visible words and the length. Words below one in a " +
  "million count as 0.";
const UNKNOWN =
  "No exact answer is at hand for this text. They were computed beforehand, for the documents of " +
  "the grammar among the examples: as they stand, and with any one word hidden.";
const get = (id) => document.getElementById(id);
const read = async (name) => (await fetch(new URL(name, import.meta.url))).json();

class Page {
  constructor(settings, examples, tokenizer, model) {
    Object.assign(this, { settings, examples, tokenizer, model });
    this.strip = new Strip(document, (words) => this.moved(words));
    this.attention = new Attention(document, settings.layers, settings.heads);
    this.asked = 0; // how often; a late answer to an old question is dropped
    this.answers = new Map(); // a blank's key -> its probabilities now
    this.before = new Map(); // and before the last move
    this.blank = 0; // which one is shown
    this.listen();
    this.examples.forEach(({ label }, at) => get("examples").add(new Option(label, at)));
    this.choose(0);
    for (const field of document.querySelectorAll("fieldset[disabled]")) field.disabled = false;
  }

  listen() {
    let waiting;
    get("text").addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.typed(), PATIENCE);
    });
    get("insert").addEventListener("click", () => {
      const field = get("text");
      field.setRangeText(MASK, field.selectionStart, field.selectionEnd, "end");
      field.focus();
      this.typed();
    });
    get("examples").addEventListener("change", () => this.choose(Number(get("examples").value)));
    get("blanks").addEventListener("change", () => {
      this.blank = Number(get("blanks").value);
      this.draw();
    });
    get("exact").addEventListener("change", () => this.draw());
  }

  /** Show an example. */
  choose(number) {
    const { words, hidden } = this.examples[number];
    const text = words.map((word, at) => (hidden.includes(at) ? MASK : word)).join(" ");
    get("text").value = text;
    this.strip.show(wordsOf(text, words));
    this.before.clear();
    this.blank = 0;
    return this.ask();
  }

  /** The text was changed by hand. */
  typed() {
    this.strip.show(wordsOf(get("text").value));
    this.before.clear();
    return this.ask();
  }

  /** A word was moved, hidden or shown. */
  moved(words) {
    get("text").value = textOf(words);
    this.before = new Map(this.answers);
    return this.ask();
  }

  /** Ask the model about all blanks, and show what it says. */
  async ask() {
    const number = (this.asked += 1);
    const tokens = this.tokenizer.tokenize(get("text").value);
    const row = this.tokenizer.encode(tokens);
    const framed = ["[CLS]", ...tokens, "[SEP]"];
    const places = framed.flatMap((token, at) => (token === MASK ? [at] : []));
    if (!places.length) return this.nothing("Write [MASK], in capitals, where a word is hidden.");
    if (row.length > this.settings.longest) {
      const most = this.settings.longest - 2;
      return this.nothing(`These are ${tokens.length} tokens; the model reads ${most}.`);
    }
    try {
      const { logits, attention } = await this.model.ask(row, places);
      if (number !== this.asked) return;
      const keys = this.strip.words.filter(({ word }) => word === MASK).map(({ key }) => key);
      this.answers = new Map(logits.map((scores, at) => [keys[at], softmax(scores)]));
      this.shown = { number, tokens, framed, places, keys, attention };
    } catch (error) {
      if (number === this.asked) this.nothing(`The model could not answer: ${error.message}`);
      return;
    }
    this.listBlanks();
    this.draw();
  }

  nothing(why) {
    this.shown = null;
    this.answers.clear();
    get("answer").hidden = true;
    this.attention.clear();
    get("status").textContent = why;
  }

  listBlanks() {
    const { keys } = this.shown;
    this.blank = Math.min(this.blank, keys.length - 1);
    const options = keys.map((_, at) => new Option(`blank ${at + 1} of ${keys.length}`, at));
    get("blanks").replaceChildren(...options);
    get("blanks").value = this.blank;
    get("which").hidden = keys.length === 1;
  }

  draw() {
    if (!this.shown) return;
    const { tokens, framed, places, keys, attention } = this.shown;
    const key = keys[this.blank];
    const chances = this.answers.get(key);
    const before = this.before.get(key) ?? null;
    const [known, why] = this.exact(tokens);
    const exact = get("exact").checked ? known : null;
    get("why").textContent = get("exact").checked ? why : EXACT;
    get("answer").hidden = false;
    get("bars").dataset.text = tokens.join(" ");
    const vocabulary = this.tokenizer.tokens;
    const rows = drawBars(get("bars"), { chances, tokens: vocabulary, before, exact });
    this.attention.show(framed, attention, places[this.blank]);
    const best = rows.slice(0, 3).map(({ word, share }) => `${word} ${percent(share)}`);
    const blank = keys.length > 1 ? `Blank ${this.blank + 1}` : "The blank";
    get("status").textContent = `${blank}: ${best.join(", ")}.`;
  }

  /** The exact probabilities at the shown blank, a Map or null if unknown, and a sentence. */
  exact(tokens) {
    const text = tokens.join(" ");
    const found = this.examples.find(({ exact }) => exact && text in exact);
    if (!found) return [null, UNKNOWN];
    return [new Map(Object.entries(found.exact[text][this.blank])), KNOWN];
  }
}

const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

/** What the page needs from the beginning is small. The model is fetched when it is asked for. */
async function start() {
  const settings = await read("settings.json");
  const [examples, vocabulary, characters] = await Promise.all(
    ["examples.json", settings.vocabulary, "characters.json"].map(read),
  );
  const come = new Map(); // how many bytes of each file; a second try begins with what is there
  const button = get("fetch");
  button.textContent = `Fetch the model (${megabytes(settings.fetched)} MB)`;
  get("begin").hidden = false;
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const model = await fetchModel(settings, come);
      get("begin").hidden = true;
      window.page = new Page(settings, examples, new WordPiece(vocabulary, characters), model);
      if (settings.writer) new Writing(get("writing"), settings.writer, characters);
      get("sentence-title").focus({ preventScroll: true }); // the button with the focus is gone
    } catch (error) {
      button.disabled = false;
      get("status").textContent = `The model could not be fetched: ${error.message}`;
      throw error;
    }
  });
}

function fetchModel(settings, come) {
  const all = megabytes(settings.fetched);
  const tell = (file, bytes) => {
    const sum = [...come.set(file, bytes).values()].reduce((total, one) => total + one, 0);
    get("status").textContent = `Fetching the model, ${megabytes(sum)} of ${all} MB …`;
  };
  return Model.open(new URL(settings.model, import.meta.url), tell);
}

start().catch((error) => {
  get("status").textContent = `The page could not start: ${error.message}`;
  throw error;
});
