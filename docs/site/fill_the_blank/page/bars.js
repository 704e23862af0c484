// The likeliest words at a blank as bars; beside them the exact answer, and what was before.

import { largest } from "./model.js";

const SHOWN = 8;

/** Three decimals; what is too small for them with its power of ten. */
export const percent = (share) =>
  share > 0 && share < 0.0005 ? share.toExponential(1) : share.toFixed(3);

/** What is left beside exact numbers of six digits; below that it is their rounding. */
const unseen = (share) => (share < 1e-5 ? 0 : share);

const element = (name, className, text = "") => {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
};

function bar(share, className, before = null) {
  const track = element("div", "track");
  const fill = element("div", `fill ${className}`);
  fill.style.width = `${100 * Math.min(1, share)}%`;
  track.append(fill);
  if (before !== null) {
    const mark = element("div", "before");
    mark.style.left = `${100 * before}%`;
    track.append(mark);
  }
  return track;
}

/**
 * Fill a table.
 * @param {HTMLTableElement} table
 * @param {Float64Array} chances (V) the model's probabilities.
 * @param {string[]} tokens the vocabulary.
 * @param {?Float64Array} before (V) what they were before the last move.
 * @param {?Map<string, number>} exact the exact probabilities, of the likely words.
 */
export function drawBars(table, { chances, tokens, before, exact }) {
  const ids = largest(chances, SHOWN);
  if (exact) {
    const best = [...exact].sort((a, b) => b[1] - a[1]).slice(0, SHOWN);
    for (const [word] of best) {
      const id = tokens.indexOf(word);
      if (!ids.includes(id)) ids.push(id);
    }
    ids.sort((a, b) => chances[b] - chances[a]);
  }
  const rows = ids.map((id) => ({
    word: tokens[id],
    share: chances[id],
    was: before?.[id] ?? null,
    truth: exact ? (exact.get(tokens[id]) ?? 0) : null,
  }));
  const rest = (name) => Math.max(0, 1 - rows.reduce((sum, row) => sum + row[name], 0));
  rows.push({
    word: "all others",
    share: rest("share"),
    was: before ? rest("was") : null,
    truth: exact ? unseen(rest("truth")) : null,
    others: true,
  });
  const heads = ["word", "", "model", ...(exact ? ["exact"] : []), ...(before ? ["before"] : [])];
  table.tHead.replaceChildren(element("tr", ""));
  for (const head of heads) {
    const cell = head ? element("th", "", head) : element("td", "");
    if (head) cell.scope = "col";
    table.tHead.rows[0].append(cell);
  }
  table.tBodies[0].replaceChildren(
    ...rows.map(({ word, share, was, truth, others }) => {
      const row = element("tr", others ? "others" : "");
      const name = element("th", "", word);
      name.scope = "row";
      const drawn = element("td", "drawn");
      drawn.append(bar(share, "model", was));
      if (truth !== null) drawn.append(bar(truth, "exact"));
      drawn.setAttribute("aria-hidden", "true");
      row.append(name, drawn);
      for (const value of [share, ...(exact ? [truth] : []), ...(before ? [was] : [])]) {
        const cell = element("td", "number", percent(value));
        cell.dataset.value = value;
        row.append(cell);
      }
      return row;
    }),
  );
  return rows;
}
