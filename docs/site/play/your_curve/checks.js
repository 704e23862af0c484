// The checks of docs/read_your_curve.md that need no more than a log. Each gives a sentence.

const PAGE = "../read_your_curve.html";
export const SECTIONS = {
  lines: ["Three lines", "three-lines"],
  answers: ["Labels after masking", "labels-after-masking"],
  everywhere: ["Labels where nothing is predicted", "labels-where-nothing-is-predicted"],
  repeats: ["Texts repeated", "texts-repeated"],
  rate: ["A learning rate that is too high", "a-learning-rate-that-is-too-high"],
  vocabulary: ["Another vocabulary", "another-vocabulary"],
  table: ["In short", "in-short"],
};
export const linkTo = (section) => `${PAGE}#${SECTIONS[section][1]}`;

const FOUND = "found";
const CLEAR = "clear";
const UNKNOWN = "unknown";
const NEAR = 0.25; // nats, within which a loss is said to be at a line
const SOON = 50; // steps in which no model learns to read
const NOTHING = 0.05; // nats: a loss that is printed as 0.0

const nats = (loss) => loss.toFixed(2);
const count = (number) => number.toLocaleString("en");
const middle = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};

/** The median loss of the points whose step is in a part of the run, from 0 to 1. */
function level(points, from, to) {
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const at = (share) => first + share * (last - first);
  const some = points.filter(([step]) => step >= at(from) && step <= at(to));
  return some.length ? middle(some.map(([, loss]) => loss)) : null;
}

/**
 * What does not read the context loses this much, in nats.
 * With 80/10/10 the model sees a token at a fifth of the blanks, and half of these are right.
 */
export const unigramLine = (entropy, eightyTenTen) =>
  eightyTenTen ? 0.9 * entropy + 0.2 * Math.LN2 : entropy;

/**
 * Apply all checks.
 * @param {number[][]} training points [step, loss], in order; may be empty.
 * @param {number[][]} heldOut the same, of held-out texts.
 * @param {object} lines lnV, and unigram and floor, which are null if they are not known.
 * @returns {{checks: object[], verdict: string, section: string}} each check has an id, a title,
 *     a status ("found", "clear" or "unknown"), a sentence and a section.
 */
export function check(training, heldOut, lines) {
  const finite = (points) => points.filter(([, loss]) => Number.isFinite(loss));
  const seen = {
    all: training,
    allHeld: heldOut,
    log: finite(training),
    held: finite(heldOut),
    ...lines,
  };
  // What stays still is judged by the log, or by the held-out loss where there is no log.
  seen.main = seen.log.length ? seen.log : seen.held;
  seen.what = seen.log.length ? "the loss in the log" : "the held-out loss";
  const checks = CHECKS.map(([id, title, section, look]) => {
    const [status, text, other] = seen.main.length || id === "broken" ? look(seen) : NO_NUMBERS;
    return { id, title, status, text, section: other ?? section };
  });
  return { checks, ...verdict(checks, seen) };
}

const NO_NUMBERS = [UNKNOWN, "The file holds no loss that is a number."];

const CHECKS = [
  ["broken", "Is every loss a number?", "rate", isBroken],
  ["start", "Does the loss start near ln V?", "vocabulary", startsHigh],
  ["chance", "Does the loss leave ln V?", "rate", staysAtChance],
  ["unigram", "Does the loss fall below the unigram line?", "rate", staysAtUnigram],
  ["early", "Does the loss fall too fast?", "everywhere", fallsEarly],
  ["good", "Is the loss too good?", "everywhere", isTooGood],
  ["rises", "Does the held-out loss rise while the training loss falls?", "repeats", rises],
  ["spikes", "Does the loss jump?", "rate", jumps],
];

function isBroken({ all, allHeld }) {
  const broken = [...all, ...allHeld].filter(([, loss]) => !Number.isFinite(loss));
  const total = all.length + allHeld.length;
  if (!broken.length) return [CLEAR, `All ${count(total)} losses in the file are numbers.`];
  const first = Math.min(...broken.map(([step]) => step));
  return [
    FOUND,
    `${count(broken.length)} of ${count(total)} losses are NaN or infinite, the first at step ` +
      `${count(first)}. Such a run does not recover. Go back to a checkpoint before this step, ` +
      "and lower the learning rate or compute in fp32.",
  ];
}

function startsHigh({ log, held, lnV }) {
  const early = held.length && (!log.length || held[0][0] <= log[0][0]);
  const [step, loss] = early ? held[0] : log[0];
  const name = early ? "held-out loss" : "loss";
  const told = `The first ${name}, at step ${count(step)}, is ${nats(loss)}`;
  if (loss > lnV + 1) {
    return [
      FOUND,
      `${told}. This is more than a nat above ln V = ${nats(lnV)}, so the model is sure of wrong ` +
        "answers: the ids may come from another tokenizer, V may be wrong, or the first weights " +
        "are too large.",
    ];
  }
  if (loss >= lnV - 1) {
    return [
      CLEAR,
      `${told}, near ln V = ${nats(lnV)}, as it is for a model that knows nothing. If this model ` +
        "was trained before, then its head was not loaded.",
    ];
  }
  if (step === 0) {
    return [CLEAR, `${told}, below ln V = ${nats(lnV)}. The model knew something before this run.`];
  }
  return [
    UNKNOWN,
    `${told}, already below ln V = ${nats(lnV)}, so the file does not show how the run started. ` +
      "Log or evaluate before the first step to see it.",
  ];
}

/** Whether the second half of a curve is flat: its last quarter against the quarter before. */
function flatness(points) {
  if (points.length < 4) return null;
  const [before, end] = [level(points, 0.5, 0.75), level(points, 0.75, 1)];
  if (before === null || end === null) return null;
  return { before, end, fall: before - end };
}

/** Whether a curve has stopped: it falls by less than a fiftieth. */
const isStill = (flat) => flat.fall < 0.02 * flat.before;

const TOO_SHORT = [
  UNKNOWN,
  "The file has too few points for this check. At least four are needed; log more often.",
];

function staysAtChance({ main, what, lnV }) {
  const flat = flatness(main);
  if (!flat) return TOO_SHORT;
  const told = `In the last quarter of the run ${what} is ${nats(flat.end)}`;
  if (Math.abs(flat.end - lnV) <= NEAR) {
    return [
      FOUND,
      `${told}, still at ln V = ${nats(lnV)}. The model has learned nothing so far: the learning ` +
        "rate may be far too low or far too high, or the weights are not updated at all.",
    ];
  }
  if (flat.end > lnV) {
    return [FOUND, `${told}, above ln V = ${nats(lnV)}: worse than a model that knows nothing.`];
  }
  return [CLEAR, `${told}, ${nats(lnV - flat.end)} below ln V = ${nats(lnV)}.`];
}

function staysAtUnigram({ main, what, unigram, lnV }) {
  const flat = flatness(main);
  if (!flat) return TOO_SHORT;
  const still = isStill(flat);
  const told = `In the last quarter of the run ${what} is ${nats(flat.end)}`;
  const before = `and in the quarter before it was ${nats(flat.before)}`;
  if (unigram === null) {
    if (still && flat.end < lnV - NEAR) {
      return [
        UNKNOWN,
        `${told}, ${before}, so it has stopped. Give the unigram entropy of your texts above, to ` +
          "see whether it has stopped at the unigram line.",
        "lines",
      ];
    }
    const text = `${told}. Give the unigram entropy of your texts above to compare the two.`;
    return [UNKNOWN, text, "lines"];
  }
  if (flat.end < unigram - NEAR) {
    return [
      CLEAR,
      `${told}, ${nats(unigram - flat.end)} below the unigram line at ${nats(unigram)}, so the ` +
        "model reads the context, unless another check explains the low loss.",
    ];
  }
  if (still && flat.end <= unigram + NEAR) {
    return [
      FOUND,
      `${told}, ${before}: it has stopped at the unigram line, ${nats(unigram)}. The model knows ` +
        "how frequent each token is, and does not read the context. The learning rate may be too " +
        "high, or the run needs more steps.",
    ];
  }
  if (still) {
    return [
      FOUND,
      `${told}, ${before}: it has stopped above the unigram line, ${nats(unigram)}. The learning ` +
        "rate is probably wrong.",
    ];
  }
  return [
    FOUND,
    `${told}, ${before}: it still falls, but it has not come below the unigram line, ` +
      `${nats(unigram)}. The run needs more steps, or the learning rate is too low.`,
  ];
}

function fallsEarly({ log, held, unigram, lnV }) {
  if (!log.length) return noLog();
  const [line, name] = unigram === null ? [lnV, "ln V"] : [unigram, "the unigram line"];
  const half = `half of ${name}, ${nats(line / 2)}`;
  if (log[0][0] > SOON) {
    return [
      UNKNOWN,
      `The first row is at step ${count(log[0][0])}. Labels that the model can see show ` +
        `themselves in the first ${SOON} steps, so log more often there.`,
    ];
  }
  const low = log.find(([step, loss]) => step <= SOON && loss < line / 2);
  if (!low) return [CLEAR, `In the first ${SOON} steps the loss stays above ${half}.`];
  const told = `The loss is ${nats(low[1])} at step ${count(low[0])}`;
  const known = held.length && held[0][1] < line / 2 && held[0][0] <= low[0];
  if (known) return [CLEAR, `${told}, but the held-out loss began low, at ${nats(held[0][1])}.`];
  if (low === log[0] && !held.length) {
    return [
      UNKNOWN,
      `${told}, in the first row. Either the model was trained before, or it has labels that it ` +
        "can see. The held-out loss would tell which.",
    ];
  }
  return [
    FOUND,
    `${told}, already below ${half}. No model learns to read so fast. It probably copies labels ` +
      "that it can see, at visible tokens or at padding, or it learns a handful of rows by heart.",
  ];
}

const noLog = () => [UNKNOWN, "The file holds no training loss, which this check needs."];

function isTooGood({ log, held, floor }) {
  if (!log.length) return noLog();
  const [step, loss] = log.find(([, one]) => one < NOTHING) ?? [null, null];
  const soon = step !== null && step - log[0][0] <= 0.25 * (log.at(-1)[0] - log[0][0]);
  if (soon) {
    return [
      FOUND,
      `The loss is ${nats(loss)} at step ${count(step)}, so the model is sure of every answer. ` +
        "The labels were probably copied after masking, so that each of them is [MASK].",
      "answers",
    ];
  }
  const under = floor === null ? null : log.find(([, one]) => one < floor - 0.05);
  if (under) {
    return [
      FOUND,
      `The loss is ${nats(under[1])} at step ${count(under[0])}, below the floor of ` +
        `${nats(floor)}, which no model can reach on new texts.`,
    ];
  }
  const first = held.find(([at]) => at > log[0][0] / 2 && at > 0);
  if (!first) {
    const low = Math.min(...log.map(([, one]) => one));
    return [
      UNKNOWN,
      `The lowest loss in the log is ${nats(low)}. Without a held-out loss nobody can say ` +
        "whether it is too good. Evaluate on held-out texts whose labels are right.",
    ];
  }
  const near = log.reduce((best, one) =>
    Math.abs(one[0] - first[0]) < Math.abs(best[0] - first[0]) ? one : best,
  );
  const told =
    `At step ${count(first[0])}, where the two can first be compared, the log says ` +
    `${nats(near[1])} and the held-out loss is ${nats(first[1])}`;
  const early = first[0] - log[0][0] <= 0.25 * (log.at(-1)[0] - log[0][0]);
  if (near[1] < first[1] / 2 && early) {
    return [
      FOUND,
      `${told}. So large a gap from the start comes from labels that should be −100, at ` +
        "visible tokens or at padding.",
    ];
  }
  if (near[1] < first[1] / 2) {
    return [UNKNOWN, `${told}. Whether the gap was there from the start cannot be seen.`];
  }
  return [CLEAR, `${told}. So the log is not too good there.`];
}

function rises({ log, held }) {
  if (held.length < 2) {
    return [
      UNKNOWN,
      "The file has fewer than two held-out losses, and only they show whether a model learns " +
        "the language or learns its texts by heart.",
    ];
  }
  const low = held.reduce((best, one) => (one[1] < best[1] ? one : best));
  const end = held.at(-1);
  const told =
    `The held-out loss is lowest at step ${count(low[0])}, at ${nats(low[1])}, and ends at ` +
    nats(end[1]);
  if (end[1] - low[1] < Math.max(0.1, 0.05 * low[1])) {
    const rest = low === end ? ": it never turned around." : ", hardly above that.";
    return [CLEAR, told + rest];
  }
  const since = log.filter(([step]) => step >= low[0]);
  if (since.length < 2) {
    return [UNKNOWN, `${told}. The log has too few rows after that step to compare.`];
  }
  const few = Math.min(3, since.length >> 1);
  const of = (points) => middle(points.map(([, loss]) => loss));
  const [from, to] = [of(since.slice(0, few)), of(since.slice(-few))];
  if (from - to < 0.1) {
    return [CLEAR, `${told}, but the loss in the log does not fall meanwhile.`];
  }
  const falls = `${told}, while the loss in the log falls from ${nats(from)} to ${nats(to)}`;
  if (low === held[0]) {
    return [
      FOUND,
      `${falls}. What the model learns never helped it on held-out texts. Either its labels are ` +
        "wrong, or it learns a few texts by heart.",
    ];
  }
  return [
    FOUND,
    `${falls}. The model learns its texts by heart: there are repeated texts, or too few texts.`,
  ];
}

function jumps({ main, what }) {
  if (main.length < 8) return TOO_SHORT;
  const losses = main.map(([, loss]) => loss);
  const changes = losses.slice(1).map((loss, at) => Math.abs(loss - losses[at]));
  const usual = middle(changes);
  const most = Math.max(0.5, 8 * usual);
  const found = [];
  for (let at = 4; at < losses.length; at += 1) {
    const before = middle(losses.slice(Math.max(0, at - 5), at));
    const jump = losses[at] - before;
    if (jump > most) found.push({ step: main[at][0], jump, before, at });
  }
  if (!found.length) {
    return [
      CLEAR,
      `From one row to the next ${what} usually changes by ${nats(usual)}, and it never jumps up ` +
        `by more than ${nats(most)}.`,
    ];
  }
  const worst = found.reduce((best, one) => (one.jump > best.jump ? one : best));
  const back = losses.slice(worst.at + 1).some((loss) => loss < worst.before + NEAR);
  const rest =
    worst.at === losses.length - 1
      ? "The file ends there."
      : back
        ? "Later it came back to where it was."
        : "It never came back to where it was.";
  return [
    FOUND,
    `At step ${count(worst.step)} ${what} jumps from ${nats(worst.before)} up to ` +
      `${nats(worst.before + worst.jump)}. ${rest} A learning rate that is too high, or a step ` +
      "on broken texts, causes such jumps.",
  ];
}

/** The row of the page's table "In short" that fits, as a sentence. */
function verdict(checks, { held, main, unigram, lnV }) {
  const by = Object.fromEntries(checks.map((one) => [one.id, one]));
  const found = (id) => by[id].status === FOUND;
  const say = (text, section) => ({ verdict: text, section });
  if (found("broken")) return say("The run broke: its loss is no longer a number.", "rate");
  if (found("good") && by.good.section === "answers") {
    return say("The likely cause is that the labels were copied after masking.", "answers");
  }
  if (found("good") || found("early")) {
    return say("The likely cause is labels that should be −100.", "everywhere");
  }
  if (found("start")) return say("The likely cause is another vocabulary.", "vocabulary");
  if (found("rises")) return say("The model learns its texts by heart.", "repeats");
  if (found("chance")) return say("The model has learned nothing so far.", "rate");
  if (found("unigram")) {
    return say("The learning rate is probably wrong, or the run has too few steps.", "rate");
  }
  if (found("spikes")) return say("The loss jumps. Otherwise no fault was found.", "rate");
  const flat = flatness(main);
  if (unigram === null && flat && isStill(flat) && flat.end < lnV - NEAR) {
    const text = "The loss has stopped. The unigram line would tell whether the model reads.";
    return say(text, "lines");
  }
  const clear = checks.filter(({ status }) => status === CLEAR).length;
  const rest = held.length ? "" : " Without a held-out loss this says little.";
  const text = `None of the checks found a fault; ${clear} of ${checks.length} could be made.`;
  return say(text + rest, "table");
}
