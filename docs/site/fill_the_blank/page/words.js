// Text to words, as BERT does it and as mlm_lib/words.py does.
// Which characters are controls, marks or punctuation stands in the table that the course carries,
// since a browser's own tables are newer than the ones BERT's tokenizer was built with.

const SPACES =
  "\\t\\n\\x0b\\x0c\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const CHINESE =
  "\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff\\u{20000}-\\u{2a6df}\\u{2a700}-\\u{2b81f}" +
  "\\u{2b920}-\\u{2ceaf}\\u{2f800}-\\u{2fa1f}";

/** A function from a text without special tokens to its words, lower-cased and without accents. */
export function makeSplitter(table) {
  const point = (number) => `\\u{${number.toString(16)}}`;
  const inside = (name) => table[name].map(([a, b]) => `${point(a)}-${point(b)}`).join("");
  const control = new RegExp(`[\\0${inside("control")}]+`, "gu");
  const chinese = new RegExp(`[${CHINESE}]`, "gu");
  const undecomposed = new RegExp(`([${inside("undecomposed")}]+)`, "u");
  const mark = new RegExp(`[${inside("mark")}]+`, "gu");
  const split = new RegExp(`([${inside("punctuation")}]|[${SPACES}]+)`, "u");
  const space = new RegExp(`^[${SPACES}]`, "u");
  const lower = new Map(Object.entries(table.lower));

  return function splitWords(text) {
    // 1. Half a character becomes U+FFFD. It goes with the controls; a Chinese character is a word.
    text = text.replace(/\p{Surrogate}/gu, "\ufffd").replace(control, "");
    text = text.replace(chinese, " $& ");
    // 2. é -> e and a mark -> e. Every second part is one that BERT's tokenizer cannot take apart.
    const parts = text.split(undecomposed);
    text = parts.map((part, at) => (at % 2 ? part : part.normalize("NFD"))).join("");
    text = text.replace(mark, "");
    // 3. Letter by letter: a whole word would get a final ς, where BERT has σ.
    text = Array.from(text, (char) => lower.get(char) || char.toLowerCase()).join("");
    // 4. Split, and keep what is no space.
    return text.split(split).filter((word) => word && !space.test(word));
  };
}
