// The part of the page where the writer writes: controls, and words that appear one by one.

import { percent } from "./bars.js";
import { Model } from "./model.js";
import { readable, WordPiece } from "./wordpiece.js";
import { RULES, write } from "./writer.js";

const PAUSE = 120; // milliseconds between words, to be watched

export class Writing {
  /** `settings` is the writer's part of settings.json. */
  constructor(root, settings, characters) {
    this.settings = settings;
    this.characters = characters;
    this.get = (id) => root.querySelector(`#${id}`);
    const { least, typical, most } = settings.lengths;
    Object.assign(this.get("length"), { min: least, max: most, value: typical });
    this.get("length-range").textContent = `${least} to ${most}`;
    for (const [rule, text] of Object.entries(RULES)) this.get("rule").add(new Option(text, rule));
    this.get("write").addEventListener("click", () => this.run());
    this.get("step").addEventListener("click", () => this.step());
    this.get("stop").addEventListener("click", () => this.stop());
    for (const id of ["length", "rule", "temperature", "seed"]) {
      this.get(id).addEventListener("change", () => this.reset());
    }
    this.get("writer-size").textContent =
      `The first word fetches course-writer, which has ${(settings.bytes / 1e6).toFixed(1)} MB.`;
    root.hidden = false;
    this.reset();
  }

  say(text) {
    this.get("written").textContent = text;
  }

  /** The numbers of the form, or null where one is out of its range. */
  options() {
    for (const id of ["length", "temperature", "seed"]) {
      const field = this.get(id);
      if (!field.checkValidity() || field.value === "") {
        const why = field.validationMessage || "a number is needed";
        this.say(`${field.labels[0].textContent.trim()}: ${why}`);
        return null;
      }
    }
    const number = (id) => Number(this.get(id).value);
    const [length, temperature, seed] = ["length", "temperature", "seed"].map(number);
    return { length, temperature, seed, rule: this.get("rule").value };
  }

  /** All blanks again. */
  reset() {
    this.running = false;
    this.words = null; // the generator
    this.order = 0;
    this.row = [];
    this.say("");
    const options = this.options();
    this.get("paper").replaceChildren(
      ...Array.from({ length: options?.length ?? 0 }, () => {
        const slot = document.createElement("li");
        slot.className = "slot";
        slot.textContent = "\u2009";
        return slot;
      }),
    );
    this.buttons();
  }

  buttons() {
    this.get("write").disabled = this.running;
    this.get("step").disabled = this.running;
    this.get("stop").disabled = !this.running;
  }

  /** Fetch the writer, the first time that it is asked. */
  async load() {
    if (this.model) return;
    this.say(`Fetching the writer, ${(this.settings.bytes / 1e6).toFixed(1)} MB …`);
    const vocabulary = await (await fetch(this.settings.vocabulary)).json();
    this.tokenizer = new WordPiece(vocabulary, this.characters);
    this.model = await Model.open(this.settings.model);
    this.get("writer-size").hidden = true;
    this.say("");
  }

  /** One word; true if there was one to write. */
  async next() {
    await this.load();
    if (!this.words) {
      const options = this.options();
      if (!options) return false;
      this.words = write(this.model, this.tokenizer, options);
    }
    const words = this.words;
    const { done, value } = await words.next();
    if (words !== this.words) return false; // begun anew meanwhile
    if (done) {
      this.finish();
      return false;
    }
    const { place, id, confidence } = value;
    this.order += 1;
    const token = this.tokenizer.tokens[id];
    this.row[place] = token;
    const paper = this.get("paper");
    paper.querySelector(".new")?.classList.remove("new");
    const slot = paper.children[place];
    slot.className = "slot filled new";
    slot.dataset.order = this.order;
    slot.textContent = token;
    slot.title = `word ${this.order} to be written, confidence ${percent(confidence)}`;
    const sure = percent(confidence);
    this.latest = `Step ${this.order}: “${token}” at place ${place + 1}, confidence ${sure}.`;
    if (this.order === paper.children.length) this.finish();
    return this.words !== null;
  }

  finish() {
    this.words = null;
    this.running = false;
    this.say(`Written: ${readable(this.row)}`);
    this.buttons();
  }

  /** After the last word, begin anew. */
  again() {
    if (!this.words && this.order) this.reset();
  }

  async step() {
    this.again();
    await this.guarded(async () => {
      const more = await this.next();
      if (more) this.say(this.latest);
    });
  }

  async run() {
    this.again();
    this.running = true;
    this.buttons();
    await this.guarded(async () => {
      while (this.running && (await this.next())) {
        this.get("latest").textContent = this.latest; // seen, and not read out word by word
        await new Promise((resume) => setTimeout(resume, PAUSE));
      }
    });
    this.get("latest").textContent = "";
    this.running = false;
    this.buttons();
  }

  stop() {
    this.running = false;
    this.buttons();
  }

  async guarded(work) {
    try {
      await work();
    } catch (error) {
      this.say(`The writer stopped: ${error.message}`);
    }
  }
}
