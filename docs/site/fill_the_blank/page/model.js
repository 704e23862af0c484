// The model in the browser: onnxruntime-web, one thread, nothing sent anywhere.

// onnxruntime-web and its WebAssembly program, fetched once, when the first model is asked for.
let runtime = null;

async function fetchRuntime(tell) {
  const program = new URL("onnxruntime.wasm", import.meta.url);
  const [ort, wasmBinary] = await Promise.all([
    import("./onnxruntime.js"),
    fetchBytes(program, tell),
  ]);
  ort.env.wasm.numThreads = 1; // more would need headers that a plain static server does not send
  ort.env.wasm.proxy = false;
  ort.env.wasm.wasmBinary = wasmBinary;
  return ort;
}

/** A file's bytes; `tell` is called with its address and how many of them have come. */
async function fetchBytes(url, tell) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} could not be fetched: ${response.status}`);
  const parts = [];
  let length = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    length += value.length;
    tell(String(url), length);
  }
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

export class Model {
  /** Fetch an exported checkpoint and make it ready; `tell` is called as by `fetchBytes`. */
  static async open(url, tell = () => {}) {
    const model = new Model();
    runtime ??= fetchRuntime(tell).catch((error) => {
      runtime = null; // so that it can be fetched again
      throw error;
    });
    const both = [runtime, fetchBytes(url, tell)];
    await Promise.allSettled(both); // so that nothing is still on its way when an error is told
    const [ort, bytes] = await Promise.all(both);
    model.ort = ort;
    model.session = await ort.InferenceSession.create(bytes, { executionProviders: ["wasm"] });
    model.last = Promise.resolve();
    return model;
  }

  /**
   * One row, read once.
   * @param {number[]} ids (T) token ids, [CLS] and [SEP] among them.
   * @param {number[]} positions (M) where to predict.
   * @returns {Promise<{logits: Float32Array[], attention: function}>} M rows of V scores;
   *     attention(layer, head, query) gives the T weights of a query, counted from 0.
   */
  ask(ids, positions) {
    const run = async () => {
      const row = (numbers) =>
        new this.ort.Tensor("int64", BigInt64Array.from(numbers, BigInt), [1, numbers.length]);
      const out = await this.session.run({ input_ids: row(ids), positions: row(positions) });
      const [, , V] = out.logits.dims;
      const [, , A, T] = out.attentions.dims;
      return {
        logits: positions.map((_, at) => out.logits.data.subarray(at * V, (at + 1) * V)),
        attention: (layer, head, query) => {
          const start = ((layer * A + head) * T + query) * T;
          return out.attentions.data.subarray(start, start + T);
        },
      };
    };
    this.last = this.last.then(run, run); // one after the other
    return this.last;
  }
}

/** Probabilities of scores, in double precision. */
export function softmax(scores) {
  let most = -Infinity;
  for (const score of scores) most = Math.max(most, score);
  const chances = Float64Array.from(scores, (score) => Math.exp(score - most));
  const sum = chances.reduce((total, chance) => total + chance, 0);
  return chances.map((chance) => chance / sum);
}

/** The numbers of the k largest, largest first; among equals the first. */
export function largest(values, k) {
  const order = [];
  values.forEach((value, at) => {
    if (order.length === k && value <= values[order[k - 1]]) return;
    let place = order.length;
    while (place > 0 && values[order[place - 1]] < value) place -= 1;
    order.splice(place, 0, at);
    if (order.length > k) order.pop();
  });
  return order;
}
