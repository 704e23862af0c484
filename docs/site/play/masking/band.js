// The sampling band of lesson 02: how many tokens are to be expected, and how far chance goes.

/**
 * The band of a count. Units that are drawn together move the count by their size.
 * @param {number[]} sizes how many tokens each unit has; ones, if single tokens are drawn.
 * @param {number} rate
 * @returns {{open, mean, deviation, low, high}} how many tokens may be chosen; the mean and the
 *     standard deviation of the count; 1.96 standard deviations below and above the mean.
 */
export function bandOf(sizes, rate) {
  const open = sizes.reduce((sum, size) => sum + size, 0);
  const squares = sizes.reduce((sum, size) => sum + size * size, 0);
  const mean = open * rate;
  const deviation = Math.sqrt(rate * (1 - rate) * squares);
  return { open, mean, deviation, low: mean - 1.96 * deviation, high: mean + 1.96 * deviation };
}

/** The exact probability of each count, from 0 to all tokens. */
export function chancesOf(sizes, rate) {
  let chances = [1];
  for (const size of sizes) {
    const next = new Array(chances.length + size).fill(0);
    chances.forEach((chance, count) => {
      next[count] += chance * (1 - rate);
      next[count + size] += chance * rate;
    });
    chances = next;
  }
  return chances;
}

/** Whether a count is in the band. A hair is allowed, since sums of fractions round. */
export const inside = (count, { low, high }) => count >= low - 1e-9 && count <= high + 1e-9;
