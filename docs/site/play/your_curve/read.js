// From a file to a curve: what `pretrain` writes, what transformers' Trainer writes, any CSV.

const PRETRAIN = "a log of pretrain";
const CARD = "the training log of a checkpoint";

/** A file that cannot be read as a curve; the message says what to do. */
export class Unreadable extends Error {}

const STEP = /^(global[ _]?)?(step|steps|iteration|iterations|iter|update|updates)$/;
// TensorBoard names its column "value", and Lightning adds "_step".
const TRAINING = /^(train(ing)?[ _/.-]*)?loss([ _]step)?$|^value$|^train(ing)?$/;
const HELD_OUT = /^(held|eval|val|valid|validation|test|dev)([ _/.-]|$)/;
// W&B adds __MIN and __MAX.
const NOT_A_LOSS = /__(min|max)$|runtime|per_second|accuracy|perplexity/;

/**
 * Read a file.
 * @param {string} name its name, for messages.
 * @param {string} text its text.
 * @returns {{name, kind, training: number[][], heldOut: Object<string, number[][]>}} points
 *     [step, loss], in the order of the steps. A loss that was no finite number is NaN.
 */
export function readCurve(name, text) {
  const plain = text.replace(/^\ufeff/, "").trim();
  if (!plain) throw new Unreadable(`${name} is empty. Choose the log file of a training run.`);
  if (plain.includes("\0")) {
    throw new Unreadable(
      `${name} is not a text file in UTF-8. Choose log.jsonl, trainer_state.json or a CSV file.`,
    );
  }
  let kind, rows;
  if (/^\s*[[{]/.test(plain)) [kind, rows] = fromJson(name, plain);
  else [kind, rows] = ["a table", fromTable(name, plain)];
  return curveOf(name, kind, rows);
}

/** JSON as Python writes it, which allows NaN and Infinity; both become null here. */
function parse(text) {
  const outsideStrings = /("(?:[^"\\]|\\.)*")|-?\b(?:NaN|Infinity)\b/g;
  return JSON.parse(text.replace(outsideStrings, (all, string) => string ?? "null"));
}

function fromJson(name, text) {
  try {
    const whole = parse(text);
    if (Array.isArray(whole)) return ["a list of rows", whole];
    if (Array.isArray(whole.log_history)) return ["the Trainer's log", whole.log_history];
    if (Array.isArray(whole.history)) return [CARD, whole.history];
    if (!("step" in whole)) {
      throw new Unreadable(
        `${name} holds settings or other data, and no log. The Trainer writes its log into ` +
          "trainer_state.json, in the folder of a checkpoint, and pretrain writes log.jsonl.",
      );
    }
  } catch (error) {
    if (error instanceof Unreadable) throw error;
  }
  const lines = text.split(/\r?\n/);
  const rows = [];
  lines.forEach((line, at) => {
    if (!line.trim()) return;
    try {
      rows.push(parse(line));
    } catch {
      if (at === lines.length - 1 && rows.length) return; // a run that was stopped while it wrote
      throw new Unreadable(
        `Line ${at + 1} of ${name} is not JSON: "${line.slice(0, 40)}". A log of pretrain has ` +
          "one JSON object in each line; trainer_state.json is one object as a whole. Was the " +
          "file cut off or edited?",
      );
    }
  });
  return [PRETRAIN, rows];
}

function fromTable(name, text) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim());
  const separator = ["\t", ";", ","].find((one) => lines[0].includes(one)) ?? ",";
  const heads = cells(lines[0], separator);
  if (heads.length < 2) {
    throw new Unreadable(
      `The first line of ${name} is "${lines[0].slice(0, 40)}", and not the head of a table. ` +
        "Give a CSV file whose first line names its columns, such as: step,loss",
    );
  }
  if (!heads.some((head) => STEP.test(plainName(head)))) {
    throw new Unreadable(
      `${name} has no column of steps. Its columns are ${heads.join(", ")}. Name one of them step.`,
    );
  }
  const number = (cell) => {
    const written = separator === ";" ? cell.replace(",", ".") : cell; // 3,5 beside semicolons
    if (cell === "") return undefined;
    if (/^[+-]?(nan|inf|infinity|null|none)$/i.test(written)) return null;
    const value = Number(written);
    return Number.isNaN(value) ? cell : value;
  };
  return lines.slice(1).map((line) => {
    const values = cells(line, separator).map(number);
    return Object.fromEntries(heads.map((head, at) => [head, values[at]]));
  });
}

/** The cells of a line; a cell in quotation marks may hold the separator. */
function cells(line, separator) {
  const found = [""];
  let quoted = false;
  for (const char of line) {
    if (char === '"') quoted = !quoted;
    else if (char === separator && !quoted) found.push("");
    else found[found.length - 1] += char;
  }
  return found.map((cell) => cell.trim());
}

/** A column's name without what W&B puts before it ("run 3 - train/loss"), in small letters. */
const plainName = (name) => name.split(" - ").at(-1).trim().toLowerCase();

const isHeldOut = (key) => HELD_OUT.test(plainName(key));

function curveOf(name, kind, rows) {
  if (!rows.length) {
    const where = kind === "a table" ? "below its head" : "yet";
    throw new Unreadable(`${name} has no row ${where}. Has the training logged a step?`);
  }
  const named = new Set();
  for (const row of rows) for (const key of Object.keys(row ?? {})) named.add(key);
  const usable = [...named].filter((key) => !NOT_A_LOSS.test(plainName(key)));
  const step = usable.find((key) => STEP.test(plainName(key)));
  const found = [...named].join(", ") || "none";
  if (step === undefined) {
    throw new Unreadable(
      `The rows of ${name} have no step. Their fields are: ${found}. Name one of them step.`,
    );
  }
  // In our own logs each further loss is that of a held-out set, under any name.
  const ours = kind === PRETRAIN || kind === CARD;
  const trained = usable.find((key) => TRAINING.test(plainName(key)));
  const others = usable.filter(
    (key) => key !== trained && /loss$/.test(plainName(key)) && (ours || isHeldOut(key)),
  );
  // The Trainer closes its log with the mean of the whole run, which is no point of the curve.
  const held = others.filter((key) => !(key === "train_loss" && trained === "loss"));
  const training = trained === undefined ? [] : points(name, rows, step, trained);
  const heldOut = Object.fromEntries(held.map((key) => [key, points(name, rows, step, key)]));
  if (!training.length && !Object.values(heldOut).some((one) => one.length)) {
    throw new Unreadable(
      `${name} has no loss. Its fields are: ${found}. The training loss is read from a field ` +
        "loss or train_loss, and the held-out loss from eval_loss, val_loss or held_out_loss.",
    );
  }
  return { name, kind, training, heldOut };
}

function points(name, rows, step, key) {
  const found = [];
  for (const row of rows) {
    if (row?.[key] === undefined || row[key] === "") continue;
    const [at, loss] = [row[step], row[key]];
    if (typeof at !== "number" || !Number.isFinite(at)) {
      throw new Unreadable(`In ${name} a row has the step "${at}", which is no number.`);
    }
    if (loss !== null && typeof loss !== "number") {
      throw new Unreadable(`In ${name} the ${key} of step ${at} is "${loss}", which is no number.`);
    }
    found.push([at, loss === null || !Number.isFinite(loss) ? NaN : loss]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}

/** The size of the vocabulary that a config.json or a vocab.txt tells, or null. */
export function vocabularySize(name, text) {
  if (/(^|\/)vocab\.txt$/.test(name)) return text.trimEnd().split("\n").length;
  try {
    const size = JSON.parse(text).vocab_size;
    return Number.isInteger(size) && size > 1 ? size : null;
  } catch {
    return null;
  }
}
