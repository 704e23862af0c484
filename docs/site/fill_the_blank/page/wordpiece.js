// WordPiece: the greedy longest match of each word against the vocabulary.
// Token for token what mlm_lib/wordpiece.py gives; lesson 01 builds it.

import { makeSplitter } from "./words.js";

const SPECIAL = /(\[PAD\]|\[UNK\]|\[CLS\]|\[SEP\]|\[MASK\])/;
const LONGEST_WORD = 100; // longer words become [UNK], as in BERT

export const MASK = "[MASK]";

export class WordPiece {
  /**
   * @param {string[]} tokens the vocabulary, in the order of the ids.
   * @param {object} characters BERT's character classes, `bert_characters.json`.
   */
  constructor(tokens, characters) {
    this.tokens = tokens;
    this.ids = new Map(tokens.map((token, id) => [token, id]));
    this.splitWords = makeSplitter(characters);
  }

  /** The tokens of a text. Special tokens written in it, such as [MASK], stay whole. */
  tokenize(text) {
    const tokens = [];
    text.split(SPECIAL).forEach((stretch, at) => {
      if (at % 2) {
        tokens.push(stretch);
        return;
      }
      for (const chunk of stretch.split(/[ \t\n\r]+/)) {
        for (const word of this.splitWords(chunk)) tokens.push(...this.matchLongest(word));
      }
    });
    return tokens;
  }

  /** Token ids of a list of tokens, between [CLS] and [SEP]. */
  encode(tokens) {
    return ["[CLS]", ...tokens, "[SEP]"].map((token) => this.ids.get(token));
  }

  /** The pieces of a word, from the left the longest that fits; [UNK] if a part has none. */
  matchLongest(word) {
    const letters = Array.from(word); // by code points, not by halves of them
    if (letters.length > LONGEST_WORD) return ["[UNK]"];
    const pieces = [];
    let start = 0;
    while (start < letters.length) {
      let end = letters.length;
      let piece = null;
      for (; end > start; end -= 1) {
        piece = (start ? "##" : "") + letters.slice(start, end).join("");
        if (this.ids.has(piece)) break;
      }
      if (end === start) return ["[UNK]"];
      pieces.push(piece);
      start = end;
    }
    return pieces;
  }
}

/** Tokens as a text to read: pieces joined, no blank before a full stop and its like. */
export function readable(tokens) {
  return tokens.reduce((text, token) => {
    if (token.startsWith("##")) return text + token.slice(2);
    return text && !/^[.,?!:;]/.test(token) ? `${text} ${token}` : text + token;
  }, "");
}
