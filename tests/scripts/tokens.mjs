// Reads {folder, vocabulary, characters, texts} and prints what wordpiece.js makes of the texts.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const asked = JSON.parse(readFileSync(0, "utf-8"));
const { WordPiece } = await import(pathToFileURL(`${asked.folder}/wordpiece.js`));
const { textOf, wordsOf } = await import(pathToFileURL(`${asked.folder}/strip.js`));
const tokenizer = new WordPiece(asked.vocabulary, asked.characters);
const tokens = asked.texts.map((text) => tokenizer.tokenize(text));
const again = asked.texts.map((text) => tokenizer.tokenize(textOf(wordsOf(text))));
process.stdout.write(JSON.stringify({ tokens, again }));
