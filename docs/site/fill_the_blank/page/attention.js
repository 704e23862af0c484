// Where a blank looks: a grid of layers and heads, and the chosen head's weights over the tokens.

const element = (name, className, text = "") => {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
};

export class Attention {
  /** A grid of so many layers and heads; `chosen` begins as the first of both. */
  constructor(root, layers, heads) {
    this.grid = root.querySelector("#heads");
    this.weights = root.querySelector("#weights");
    this.say = root.querySelector("#looked");
    this.chosen = [0, 0];
    this.now = null;
    const rows = Array.from({ length: layers }, (_, layer) => this.row(layer, heads));
    this.grid.replaceChildren(...rows);
  }

  row(layer, heads) {
    const row = element("div", "layer");
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", `layer ${layer + 1}`);
    row.append(element("span", "name", `layer ${layer + 1}`));
    for (let head = 0; head < heads; head += 1) {
      const button = element("button", "head");
      button.type = "button";
      button.setAttribute("aria-label", `layer ${layer + 1}, head ${head + 1}`);
      button.dataset.layer = layer;
      button.dataset.head = head;
      button.addEventListener("click", () => {
        this.chosen = [layer, head];
        this.draw();
      });
      row.append(button);
    }
    return row;
  }

  /**
   * Show a blank's weights.
   * @param {string[]} tokens (T) with [CLS] and [SEP].
   * @param {function} attention attention(layer, head, query) gives (T) weights.
   * @param {number} query the blank's place among the tokens.
   */
  show(tokens, attention, query) {
    this.now = { tokens, attention, query };
    this.draw();
  }

  clear() {
    this.now = null;
    this.weights.replaceChildren();
    this.say.textContent = "";
    for (const button of this.grid.querySelectorAll("button")) button.replaceChildren();
  }

  draw() {
    if (!this.now) return;
    const { tokens, attention, query } = this.now;
    const [layer, head] = this.chosen;
    for (const button of this.grid.querySelectorAll("button")) {
      const { layer: l, head: h } = button.dataset;
      button.setAttribute("aria-pressed", String(Number(l) === layer && Number(h) === head));
      button.replaceChildren(miniature(attention(Number(l), Number(h), query)));
    }
    const weights = Array.from(attention(layer, head, query));
    const most = Math.max(...weights);
    this.weights.replaceChildren(
      ...tokens.map((token, at) => {
        const item = element("li", at === query ? "token blank" : "token");
        const column = element("span", "column");
        const fill = element("span", "level");
        fill.style.height = `${(100 * weights[at]) / most}%`;
        column.append(fill);
        const number = element("span", "number", weights[at].toFixed(2));
        number.dataset.value = weights[at];
        item.append(column, element("span", "piece", token), number);
        return item;
      }),
    );
    const [first, second] = weights.map((_, at) => at).sort((a, b) => weights[b] - weights[a]);
    const told = (at) =>
      `${at === query ? "itself" : `“${tokens[at]}”`} (${weights[at].toFixed(2)})`;
    this.say.textContent =
      `Layer ${layer + 1}, head ${head + 1}: the blank looks most at ${told(first)}, ` +
      `then at ${told(second)}.`;
  }
}

/** A head's weights as a row of small columns. */
function miniature(weights) {
  const drawn = element("span", "miniature");
  drawn.setAttribute("aria-hidden", "true");
  const most = Math.max(...weights);
  for (const weight of weights) {
    const column = element("span", "");
    column.style.height = `${(100 * weight) / most}%`;
    drawn.append(column);
  }
  return drawn;
}
