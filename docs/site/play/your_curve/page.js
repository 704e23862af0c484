// The page of curves: a log file in, a picture and a sentence for each check out.

import { WordPiece } from "../../fill_the_blank/page/wordpiece.js";
import { drawCurve } from "./chart.js";
import { SECTIONS, check, linkTo, unigramLine } from "./checks.js";
import { SETTINGS, collect } from "./folder.js";
import { Unreadable, readCurve, vocabularySize } from "./read.js";
import { unigramEntropy } from "./unigram.js";

const BERT = 30522;
const [LARGEST, SHOWN] = [50e6, 500]; // bytes of a file, rows of the table
const WORDS = { found: "A fault", unknown: "Cannot tell", clear: "No fault" }; // in this order
const MARKS = { found: "!", clear: "✓", unknown: "?" };

const get = (id) => document.getElementById(id);
const numberIn = (id) => {
  const value = get(id).valueAsNumber;
  return Number.isFinite(value) && get(id).validity.valid ? value : null;
};
const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  Object.assign(made, attributes);
  made.append(...children);
  return made;
};

class Page {
  constructor() {
    this.curve = null;
    this.vocabulary = null; // of a vocab.txt that was given
    for (const example of globalThis.COURSE.examples) {
      const button = element("button", { type: "button" }, example.name);
      button.addEventListener("click", () => this.example(example));
      get("examples").append(element("li", {}, button));
    }
    this.sizeFrom(BERT, "30,522 is the size of BERT's vocabulary.");
    this.listen();
  }

  listen() {
    get("files").addEventListener("change", () => {
      this.open([...get("files").files].map((file) => [file.name, file]));
      get("files").value = ""; // so that the same file can be chosen again, after it has grown
    });
    const drop = get("drop");
    for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
      // Anywhere on the page, since a browser would leave it for a file that misses the field.
      window.addEventListener(name, (event) => {
        event.preventDefault();
        drop.classList.toggle("over", name === "dragenter" || name === "dragover");
        if (name === "drop") this.dropped(event.dataTransfer);
      });
    }
    get("size").addEventListener("input", () => {
      get("size-from").textContent = "";
      this.show();
    });
    for (const id of ["unigram", "floor"]) {
      get(id).addEventListener("input", () => {
        if (id === "unigram") get("unigram-from").textContent = "";
        this.show();
      });
    }
    for (const id of ["eighty", "held"]) get(id).addEventListener("change", () => this.show());
    get("texts").addEventListener("change", () => this.countTokens(get("texts").files[0]));
    window.addEventListener("resize", () => this.curve && this.drawChart());
  }

  refuse(text) {
    get("trouble").textContent = text;
    get("trouble").hidden = false;
  }

  sizeFrom(size, text) {
    get("size").value = size;
    get("size-from").textContent = text;
  }

  // ---- files

  example({ name, file, text, size, unigram, floor }) {
    this.sizeFrom(size, `The example has a vocabulary of ${size} tokens.`);
    get("unigram").value = unigram;
    get("unigram-from").textContent = "The example's own.";
    get("floor").value = floor;
    get("eighty").checked = false; // every selected token is hidden in the examples
    this.read(file, text, `The example “${name}” is open.`);
  }

  async dropped(transfer) {
    const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    if (!entries.length) {
      this.open([...transfer.files].map((file) => [file.name, file]));
      return;
    }
    const found = [];
    for (const entry of entries) await collect(entry, found);
    if (!found.length) {
      this.refuse(
        `The folder ${entries[0].name} holds no log.jsonl, no trainer_state.json and no CSV ` +
          "file, and neither do its folders. Choose the folder of a run or of a checkpoint.",
      );
      return;
    }
    this.open(found);
  }

  /** Open [path, file] pairs: settings such as config.json, and a log. */
  async open(files) {
    get("trouble").hidden = true;
    const sorted = files.toSorted(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
    const told = [];
    const logs = [];
    for (const [name, file] of sorted) {
      if (file.size > LARGEST) {
        this.refuse(
          `${name} has ${(file.size / 1e6).toFixed(0)} MB, and this page reads at most ` +
            `${LARGEST / 1e6} MB. Is it a log? Log less often, or keep fewer columns.`,
        );
        return;
      }
      if (!SETTINGS.test(name)) {
        logs.push([name, file]);
        continue;
      }
      const text = await file.text();
      const size = vocabularySize(name, text);
      if (size === null) {
        this.refuse(`${name} names no vocab_size. Type the size of the vocabulary below.`);
        continue;
      }
      if (name.endsWith("vocab.txt")) this.vocabulary = text.trimEnd().split(/\r?\n/);
      this.sizeFrom(size, `From ${name}.`);
      told.push(`V is ${size.toLocaleString("en")}, from ${name}.`);
    }
    if (!logs.length) {
      if (told.length) {
        if (!this.curve) told.push("Now choose a log file.");
        get("status").textContent = told.join(" ");
        this.show();
      }
      return;
    }
    const [name, file] = logs.at(-1);
    if (this.isExample) this.forgetExample(told.length > 0);
    if (logs.length > 1) told.push(`Of ${logs.length} log files the last one by name was taken.`);
    this.read(name, await file.text(), `${name} is open.`, told);
  }

  /** The lines of an example are not those of a file. */
  forgetExample(sizeIsKnown) {
    if (!sizeIsKnown) this.sizeFrom(BERT, "30,522 is the size of BERT's vocabulary.");
    for (const id of ["unigram", "floor"]) get(id).value = "";
    get("unigram-from").textContent = "Read your curve has a function that computes it.";
  }

  read(name, text, told, more = []) {
    get("trouble").hidden = true;
    this.isExample = told.startsWith("The example");
    try {
      this.curve = readCurve(name, text);
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      this.curve = null;
      get("result").hidden = true;
      get("go").hidden = true;
      get("status").textContent = "No file is open.";
      this.refuse(error.message);
      return;
    }
    const held = Object.keys(this.curve.heldOut);
    get("held").replaceChildren(...held.map((one) => new Option(one, one)));
    get("which").hidden = held.length < 2;
    const points = this.curve.training.length;
    const others = held.reduce((sum, one) => sum + this.curve.heldOut[one].length, 0);
    get("status").textContent = [
      told,
      `It is ${this.curve.kind}, with ${points} training losses and ${others} held-out losses.`,
      ...more,
    ].join(" ");
    this.show();
  }

  // ---- what is shown

  get lines() {
    const size = numberIn("size");
    const entropy = numberIn("unigram");
    return {
      lnV: size === null ? null : Math.log(size),
      unigram: entropy === null ? null : unigramLine(entropy, get("eighty").checked),
      floor: numberIn("floor"),
    };
  }

  show() {
    if (!this.curve) return;
    const { lnV, unigram, floor } = this.lines;
    if (lnV === null) {
      this.refuse("Give the size of the vocabulary, a whole number of at least 2, such as 30522.");
      return;
    }
    get("trouble").hidden = true;
    get("result").hidden = false;
    get("go").hidden = false;
    get("key-training").hidden = !this.curve.training.length;
    get("key-held").hidden = !Object.keys(this.curve.heldOut).length;
    this.drawChart();
    this.listNumbers();
    const held = this.curve.heldOut[get("held").value] ?? [];
    const { checks, verdict, section } = check(this.curve.training, held, { lnV, unigram, floor });
    get("verdict").replaceChildren(verdict, " ", reading(section));
    get("checks").replaceChildren(
      ...inOrder(checks).map(({ id, title, status, text, section: where }) => {
        const mark = element("span", { className: "mark", ariaHidden: "true" }, MARKS[status]);
        const head = element("h3", {}, mark, ` ${title}`);
        const said = element("p", {}, element("strong", {}, `${WORDS[status]}.`), ` ${text} `);
        said.append(reading(where));
        const item = element("li", { className: status }, head, said);
        item.dataset.check = id;
        return item;
      }),
    );
  }

  drawChart() {
    const { lnV, unigram, floor } = this.lines;
    const lines = [["ln V", lnV], ["unigram line", unigram], ["floor", floor]];
    const known = lines.filter(([, nats]) => nats !== null);
    const width = Math.max(260, get("chart").clientWidth);
    const { training, heldOut } = this.curve;
    get("chart").replaceChildren(drawCurve(width, training, heldOut, known));
  }

  listNumbers() {
    const { training, heldOut } = this.curve;
    const columns = { ...(training.length ? { "loss in the log": training } : {}), ...heldOut };
    const steps = new Map();
    Object.values(columns).forEach((points, at) => {
      for (const [step, loss] of points) steps.set(step, { ...steps.get(step), [at]: loss });
    });
    const rows = [...steps].sort((a, b) => a[0] - b[0]);
    const every = Math.ceil(rows.length / SHOWN);
    const table = get("numbers").querySelector("table");
    const head = (text) => element("th", { scope: "col" }, text);
    table.tHead.replaceChildren(
      element("tr", {}, head("step"), ...Object.keys(columns).map(head)),
    );
    table.caption.textContent =
      every === 1 ? "The losses of the file" : `Every ${every}th row of the losses of the file`;
    table.tBodies[0].replaceChildren(
      ...rows
        .filter((_, at) => at % every === 0)
        .map(([step, losses]) => {
          const cells = Object.keys(columns).map((_, at) =>
            element("td", {}, losses[at] === undefined ? "" : losses[at].toFixed(3)),
          );
          const name = element("th", { scope: "row" }, step.toLocaleString("en"));
          return element("tr", {}, name, ...cells);
        }),
    );
  }

  // ---- the unigram entropy of a text

  async countTokens(file) {
    if (!file) return;
    const say = (text) => (get("texts-told").textContent = text);
    if (file.size > LARGEST) {
      say(`${file.name} has ${(file.size / 1e6).toFixed(0)} MB; a sample of 1 MB is enough.`);
      return;
    }
    say(`Counting the tokens of ${file.name} …`);
    const { vocabulary, characters } = await course();
    const tokenizer = new WordPiece(this.vocabulary ?? vocabulary.split("\n"), characters);
    const { entropy, total } = unigramEntropy(tokenizer.tokenize(await file.text()));
    if (!total) {
      say(`${file.name} holds no token of this vocabulary. Choose a text file.`);
      return;
    }
    const whose = this.vocabulary ? "your vocab.txt" : "course-bert";
    get("unigram").value = entropy.toFixed(4);
    get("unigram-from").textContent = `From ${file.name}.`;
    say(
      `${file.name} has ${total.toLocaleString("en")} tokens of ${whose}. Their unigram entropy ` +
        `is ${entropy.toFixed(4)} nats.`,
    );
    this.show();
  }
}

/** What was found comes first. */
const inOrder = (checks) =>
  Object.keys(WORDS).flatMap((word) => checks.filter(({ status }) => status === word));

const reading = (section) =>
  element("a", { href: linkTo(section) }, `Read more: ${SECTIONS[section][0]}`);

/** The vocabulary of course-bert, which comes only when it is wanted. */
function course() {
  const script = element("script", { src: "../play/vocabulary.js" });
  return new Promise((give, fail) => {
    script.addEventListener("load", () => give(globalThis.COURSE));
    script.addEventListener("error", () => fail(new Error("vocabulary.js could not be fetched")));
    document.head.append(script);
  });
}

globalThis.page = new Page();
