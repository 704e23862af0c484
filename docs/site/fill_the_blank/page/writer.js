// Writing from all blanks, one word a step: mlm_lib/writing.py in the browser. Lesson 17 builds it.

import { softmax } from "./model.js";
import { randomNumbers } from "./random.js";
import { MASK } from "./wordpiece.js";

export const RULES = {
  confident: "the surest blank, its word drawn",
  greedy: "the surest blank, its likeliest word",
  random: "a random blank, its word drawn",
};

/** The first number whose cumulative chance exceeds a uniform one. */
export function drawn(chances, uniform) {
  const wanted = uniform * chances.reduce((sum, chance) => sum + chance, 0);
  let [sum, last] = [0, -1];
  for (let at = 0; at < chances.length; at += 1) {
    if (!(chances[at] > 0)) continue;
    sum += chances[at];
    last = at;
    if (sum > wanted) return at;
  }
  return last; // a number may round up to the whole sum
}

/**
 * Yields {place, id, confidence} for each word, in the order of writing.
 * @param {Model} model
 * @param {WordPiece} tokenizer its tokenizer.
 * @param {object} options length, rule, temperature, seed.
 */
export async function* write(model, tokenizer, { length, rule, temperature, seed }) {
  const random = randomNumbers(seed);
  const never = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", MASK].map((token) => tokenizer.ids.get(token));
  const row = tokenizer.encode(Array(length).fill(MASK));
  const blanks = row.map((_, at) => at).slice(1, -1);
  while (blanks.length) {
    // A random blank is chosen before the model is asked.
    const asked = rule === "random" ? [blanks[Math.floor(random() * blanks.length)]] : [...blanks];
    const { logits } = await model.ask(row, asked);
    for (const scores of logits) for (const id of never) scores[id] = -Infinity;
    const chances = logits.map((scores) => softmax(scores));
    const best = chances.map((row) => row.reduce((most, chance) => Math.max(most, chance), 0));
    // The surest; what differs beyond six digits is noise, and then it is the first.
    const sure = best.map((chance) => Math.round(chance * 1e6));
    const number = sure.indexOf(Math.max(...sure));
    let id = chances[number].indexOf(best[number]);
    if (rule !== "greedy") {
      const cooled = Array.from(logits[number], (score) => score / temperature);
      id = drawn(softmax(cooled), random());
    }
    const place = asked[number];
    row[place] = id;
    blanks.splice(blanks.indexOf(place), 1);
    yield { place: place - 1, id, confidence: best[number] };
  }
}
