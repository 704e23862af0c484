// The unigram entropy of texts: the loss of a model that knows only how frequent each token is.

/**
 * In nats; special tokens are left out, since they are never predicted.
 * @param {string[]} tokens
 */
export function unigramEntropy(tokens) {
  const counts = new Map();
  let total = 0;
  for (const token of tokens) {
    if (/^\[(PAD|UNK|CLS|SEP|MASK)\]$/.test(token)) continue;
    counts.set(token, (counts.get(token) ?? 0) + 1);
    total += 1;
  }
  let entropy = 0;
  for (const count of counts.values()) entropy -= (count / total) * Math.log(count / total);
  return { entropy, total };
}
