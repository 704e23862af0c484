"""A checkpoint as one ONNX file for the browser: logits at the blanks, and where each head looks.

The weights are stored in half precision wherever that loses nothing, and computed with in single.
"""

import logging
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn as nn
from onnx import TensorProto, helper, numpy_helper

from mlm_lib.engine.files import write
from mlm_lib.heads import gather
from mlm_lib.modern import ModernEncoder
from mlm_lib.unpadded import Padded

OPSET = 18
# Between torch and the file. Where attention is sharp its scores are in the hundreds, and float32
# rounds these, and with them a weight, in the fourth digit; the answers hardly feel it.
TOLERANCE = {"a probability": 2e-5, "an attention weight": 1e-3}
INPUTS, OUTPUTS = ["input_ids", "positions"], ["logits", "attentions"]


class AtBlanks(nn.Module):
    """What the page asks of a model, without the guards, which look at values and cannot be traced.

    Args:
        model: a `MaskedLanguageModel` with a `BertEncoder` or a `ModernEncoder`, on the CPU, in
            float32.
    """

    def __init__(self, model):
        super().__init__()
        self.encoder, self.head = model.embedder, model.head
        self.read = _read_modern if isinstance(self.encoder, ModernEncoder) else _read_bert

    def forward(self, input_ids, positions):
        """Rows of one length, without padding.

        Args:
            input_ids: (B, T) token ids.
            positions: (B, M) where to predict.

        Returns:
            logits (B, M, V), and attentions (L, B, A, T, T), [layer, row, head, query, key].
        """
        hidden, attentions = self.read(self.encoder, input_ids)  # (B, T, H), L times (B, A, T, T)
        rows = torch.arange(input_ids.shape[0])[:, None] * input_ids.shape[1]  # (B, 1)
        hidden = gather(hidden, positions + rows)  # (B, M, H)
        return self.head(hidden), torch.stack(attentions)


def _read_bert(encoder, input_ids):
    hidden, attentions = encoder.embeddings(input_ids), []
    for block in encoder.blocks:
        hidden, weights = block(hidden, need_weights=True)
        attentions.append(weights)
    return hidden, attentions


def _read_modern(encoder, input_ids):
    layout = Padded(None, input_ids.shape, input_ids.device)
    hidden = encoder.embeddings(input_ids)
    hidden, attentions = encoder.blocks.run(hidden, layout, need_weights=True)
    return encoder.norm(hidden), attentions


def export(model, path):
    """Write a model as ONNX.

    Args:
        model: as `AtBlanks` takes it.
        path: where the file goes.

    Returns:
        The size of the file in bytes.
    """
    longest = model.embedder.config.max_length
    batch = torch.export.Dim("batch", max=1024)
    length = torch.export.Dim("length", min=3, max=longest)
    blanks = torch.export.Dim("blanks", max=longest)
    example = torch.arange(20).view(2, 10) % 7, torch.tensor([[1, 2, 3], [4, 5, 6]])
    # With gradients on, lest the encoder write into a tensor that it was given.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells of its own optional parts
    with torch.enable_grad(), warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # about the exporter itself
        traced = torch.onnx.export(
            AtBlanks(model).eval(),
            example,
            dynamo=True,
            opset_version=OPSET,
            input_names=INPUTS,
            output_names=OUTPUTS,
            dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: blanks}),
            verbose=False,
        )
        whole = Path(folder) / "whole.onnx"
        traced.save(whole)
        proto = onnx.load(whole)
    forget(proto)
    halve(proto.graph)
    onnx.checker.check_model(proto, full_check=True)
    content = proto.SerializeToString()
    write(path, content)
    return len(content)


def forget(proto):
    """Leave out what tells of the machine that exported: stack traces with its paths, and such."""
    graph = proto.graph
    parts = [proto, graph, *graph.node, *graph.input, *graph.output, *graph.initializer]
    for part in parts:
        del part.metadata_props[:]
        part.doc_string = ""
    del graph.value_info[:]


def halve(graph):
    """Store the weights of a graph as float16, followed by a cast, where that changes none of them.

    Raises:
        ValueError: less than nine tenths of the numbers fit, so that the checkpoint is no float16.
    """
    kept, casts, total, halved = [], [], 0, 0
    for weight in graph.initializer:
        values = numpy_helper.to_array(weight)
        total += values.size
        with np.errstate(over="ignore"):
            half = values.astype(np.float16) if values.dtype == np.float32 else None
        if half is None or values.size < 256 or (half.astype(np.float32) != values).any():
            kept.append(weight)
            continue
        halved += values.size
        name = weight.name + "_float16"
        kept.append(numpy_helper.from_array(half, name))
        casts.append(helper.make_node("Cast", [name], [weight.name], to=TensorProto.FLOAT))
    if halved < 0.9 * total:
        raise ValueError(
            f"{halved:,} of {total:,} weights are float16 numbers; the page needs a checkpoint "
            "saved with dtype float16"
        )
    nodes = [*casts, *graph.node]
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(kept)
    graph.node.extend(nodes)


def session(path):
    """The file in onnxruntime, on one thread of the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@torch.no_grad()
def largest_difference(model, path, rows, mask_token_id):
    """How far the file is from torch.

    Args:
        model: the model that was exported.
        path: its file.
        rows: lists of ids, each with blanks.
        mask_token_id: what stands at a blank.

    Returns:
        (the largest difference of a probability, that of an attention weight, number of blanks).

    Raises:
        ValueError: a difference above `TOLERANCE`.
    """
    running, worst, count = session(path), [0.0, 0.0], 0
    for row in rows:
        ids = torch.tensor([row])
        positions = (ids == mask_token_id).nonzero()[:, 1][None]  # (1, M)
        asked = dict(zip(INPUTS, (ids.numpy(), positions.numpy())))
        logits, attentions = map(torch.from_numpy, running.run(OUTPUTS, asked))
        expected = model(ids)["logits"][0, positions[0]].softmax(-1)  # (M, V)
        looked = torch.stack(model.embedder(ids, output_attentions=True).attentions)
        for number, pair in enumerate([(logits[0].softmax(-1), expected), (attentions, looked)]):
            worst[number] = max(worst[number], (pair[0] - pair[1]).abs().max().item())
        count += positions.shape[1]
    for (name, most), found in zip(TOLERANCE.items(), worst):
        if not found <= most:  # NaN, too
            raise ValueError(
                f"{path} differs from torch by {found:.1e} in {name}, more than {most:.0e}; "
                "it is not to be published"
            )
    return *worst, count
