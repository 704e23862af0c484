// The rules of mlm_lib/masking.py: which tokens are chosen, and what becomes of them.

import { randomNumbers } from "../../fill_the_blank/page/random.js";

export const SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
export const IGNORE = -100; // the label of a token that was not chosen
export const MASK_SHARE = 0.8;
export const RANDOM_SHARE = 0.1;

/**
 * What may be chosen together: each token for itself, or the pieces of a word.
 * @param {string[]} tokens a row of tokens, [CLS] and [SEP] among them.
 * @param {boolean} wholeWords
 * @returns {number[][]} the positions of each unit. Special tokens are in none of them.
 */
export function unitsOf(tokens, wholeWords) {
  const units = [];
  tokens.forEach((token, at) => {
    if (SPECIAL_TOKENS.includes(token)) return;
    const continues = at > 0 && token.startsWith("##") && !SPECIAL_TOKENS.includes(tokens[at - 1]);
    if (wholeWords && continues) units.at(-1).push(at);
    else units.push([at]);
  });
  return units;
}

/** What becomes of a token whose number is u: null if it is not chosen. */
export function fateOf(u, rate) {
  if (!(u < rate)) return null;
  if (u < rate * MASK_SHARE) return "mask";
  return u < rate * (MASK_SHARE + RANDOM_SHARE) ? "random" : "kept";
}

/**
 * Mask a row.
 * @param {number[]} ids the row.
 * @param {number[][]} units as `unitsOf` gives them.
 * @param {number[]} numbers a number u in [0, 1) for each unit.
 * @param {object} options rate; maskId, the id of [MASK]; and pick, a function of a position that
 *     gives a random ordinary token.
 * @returns {{fates: ?string[], read: number[], labels: number[]}} for each position: its fate,
 *     what the model reads, and the label.
 */
export function mask(ids, units, numbers, { rate, maskId, pick }) {
  const fates = ids.map(() => null);
  const read = [...ids];
  const labels = ids.map(() => IGNORE);
  units.forEach((positions, unit) => {
    const fate = fateOf(numbers[unit], rate);
    if (!fate) return;
    for (const at of positions) {
      fates[at] = fate;
      labels[at] = ids[at];
      if (fate === "mask") read[at] = maskId;
      if (fate === "random") read[at] = pick(at);
    }
  });
  return { fates, read, labels };
}

/** The random numbers of a draw, which is known by its number. */
export const randomOf = (number) => randomNumbers(Math.imul(number, 0x9e3779b9));

/** Numbers and picks for one draw. They do not depend on the rate, so a higher rate adds tokens. */
export function drawOf(units, length, ordinary, random) {
  const numbers = units.map(() => random());
  const picks = Array.from({ length }, () => ordinary[Math.floor(random() * ordinary.length)]);
  return { numbers, pick: (at) => picks[at] };
}

/** How many tokens a draw chooses. */
export function countChosen(units, rate, random) {
  let count = 0;
  for (const positions of units) if (random() < rate) count += positions.length;
  return count;
}
