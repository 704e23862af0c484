// Reads {folder, calls: [[what, ...arguments]]} and prints what the pages' functions answer.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { folder, calls } = JSON.parse(readFileSync(0, "utf-8"));
const load = (name) => import(pathToFileURL(`${folder}/${name}`));
const rules = await load("masking/rules.js");
const band = await load("masking/band.js");
const { Unreadable, readCurve, vocabularySize } = await load("your_curve/read.js");
const { SECTIONS, check, unigramLine } = await load("your_curve/checks.js");
const { collect } = await load("your_curve/folder.js");
const { unigramEntropy } = await load("your_curve/unigram.js");

const answers = {
  sections: () => SECTIONS,
  // A row masked with given numbers; `marker` stands for every random token.
  mask(tokens, ids, numbers, options) {
    const { rate, maskId, wholeWords, marker } = options;
    const units = rules.unitsOf(tokens, wholeWords);
    const pick = () => marker;
    return { units, ...rules.mask(ids, units, numbers.slice(0, units.length), { rate, maskId, pick }) };
  },
  // The counts of many draws, as the page makes them, and which random tokens it picked.
  draws(tokens, ids, ordinary, many, { rate, maskId, wholeWords }) {
    const units = rules.unitsOf(tokens, wholeWords);
    const counts = [];
    const picked = {};
    for (let draw = 1; draw <= many; draw += 1) {
      const { numbers, pick } = rules.drawOf(units, ids.length, ordinary, rules.randomOf(draw));
      const { fates, read } = rules.mask(ids, units, numbers, { rate, maskId, pick });
      const number = (fate) => fates.filter((one) => one === fate).length;
      counts.push(["mask", "random", "kept"].map(number));
      const again = rules.countChosen(units, rate, rules.randomOf(draw));
      if (again !== ids.length - number(null)) throw new Error(`draw ${draw} counts ${again}`);
      fates.forEach((fate, at) => {
        if (fate === "random") picked[read[at]] = (picked[read[at]] ?? 0) + 1;
      });
    }
    return { counts, picked };
  },
  band: (sizes, rate) => band.bandOf(sizes, rate),
  chances: (sizes, rate) => band.chancesOf(sizes, rate),
  read(name, text) {
    try {
      return readCurve(name, text);
    } catch (error) {
      if (error instanceof Unreadable) return { refused: error.message };
      throw error;
    }
  },
  check(name, text, held, lines) {
    const curve = readCurve(name, text);
    return check(curve.training, curve.heldOut[held] ?? [], lines);
  },
  // The paths that are taken from folders, which are objects, and files, which are strings.
  async collect(name, content) {
    const entry = (name, content, path = `/${name}`) => {
      if (typeof content === "string") {
        return { isFile: true, fullPath: path, file: (give) => give({ name, content }) };
      }
      const inside = Object.entries(content).map(([one, of]) => entry(one, of, `${path}/${one}`));
      const batches = [...inside.map((one) => [one]), []]; // a browser gives them in batches
      return { createReader: () => ({ readEntries: (give) => give(batches.shift()) }) };
    };
    const found = [];
    await collect(entry(name, content), found);
    return found.map(([path]) => path);
  },
  size: vocabularySize,
  unigram: unigramEntropy,
  line: unigramLine,
};
const told = await Promise.all(calls.map(([what, ...rest]) => answers[what](...rest)));
process.stdout.write(JSON.stringify(told));
