"""Batches without padding: all real tokens in one row, while documents stay apart in attention.

Most layers treat each token by itself. Such a layer does not have to know where a document ends, so
it is given the real tokens of all documents in one row, (N, H) instead of (B, T, H). Only attention
has to know, and it mixes each document by itself. An encoder does not ask which of the two forms a
batch has: `Padded` and `Unpadded` have the same methods.

Portes et al. (2023) and ModernBERT (Warner et al. 2024) compute no padding either, with a kernel
for GPUs; torch has such a kernel since 2.10. On a CPU, one call of attention for all documents of
one length was the fastest of the ways that we measured (`python -m benchmarks.modern --ways`).
Built in the lesson on the encoder of today.
"""

import torch
import torch.nn.functional as F

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # an older torch, which has no such kernel
    varlen_attn = None

# A document of this many half windows, or more, is mixed window by window. Each piece of two half
# windows attends to four half windows, so that from this length on at most half of all pairs are
# computed, which pays for the cutting.
LONG_DOCUMENT = 8
FAR_AWAY = -(10**9)  # a position that no token can see; it is given to what fills up a window


class Padded:
    """A batch as it came, (B, T, ...): padding is computed, hidden as a key, and set to 0.

    Args:
        real: (B, T) bool, True at real tokens; None if nothing is padded.
        shape: B and T.
        device: the device of the batch.
    """

    def __init__(self, real, shape, device):
        self.real = real
        self.positions = torch.arange(shape[1], device=device)  # (T,), of the tokens in their rows
        self.masks = {}  # {half window: mask}; layers with the same half window share one

    def take(self, rows):
        """The rows (B, T, ...) in this form, which is (B, T, ...) again."""
        return rows

    def put(self, rows, select=None):
        """The rows (B, T, ...) with 0 at padding; with `select`, only those that it picks."""
        if self.real is not None:
            rows = rows.masked_fill(~self.real[..., None], 0.0)
        return rows if select is None else select(rows)

    pick = put

    def mix(self, query, key, value, attend, half_window=None, *, dropout_p=0.0):
        """Attention within each row.

        Args:
            query, key, value: (B, T, A, D).
            attend: the attention to use, called with query, key and value (B, A, T, D), a mask
                [query, key] or None, and `dropout_p`. It returns mixed values and weights, as
                `encoder.attend` does.
            half_window: how many positions to each side a token attends to; None: the whole
                document.
            dropout_p: the probability that an attention weight is dropped.

        Returns:
            The mixed values (B, T, A·D), and the weights that `attend` returned.
        """
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        mask = self._mask(half_window)
        mixed, weights = attend(query, key, value, mask, dropout_p=dropout_p)
        return mixed.transpose(1, 2).flatten(2), weights

    def _mask(self, half_window):
        """The keys that each query may attend to, (B or 1, 1, T or 1, T) bool, or None for all.

        Every query may attend to at least one key, because otherwise attention would give NaN.
        """
        if half_window not in self.masks:
            keys = None
            if self.real is not None:  # a row of padding alone attends to all of its padding
                keys = (self.real | ~self.real.any(1, keepdim=True))[:, None, None]
            if half_window is not None:
                distance = (self.positions[:, None] - self.positions).abs()  # (T, T)
                near = (distance <= half_window)[None, None]
                keys = near if keys is None else near & keys | (distance == 0)
            self.masks[half_window] = keys
        return self.masks[half_window]


class Unpadded:
    """Only the real tokens of a batch, (N, ...), one document after the other, the shortest first.

    Positions are those in the padded row. A document with padding in between therefore keeps the
    distances between its tokens.

    Args:
        real: (B, T) bool, True at real tokens. It has to be on the CPU, because all calls are
            planned from it; on a GPU each look at its values would synchronise.
        device: the device of the batch.
    """

    def __init__(self, real, device="cpu"):
        self.shape = real.shape
        lengths = real.sum(1)  # (B,)
        order = lengths.argsort(stable=True)
        # For each of the N tokens: the number of its document in this order, and its position.
        documents, self.places = real[order].nonzero(as_tuple=True)  # (N,) each
        self.numbers = order[documents] * real.shape[1] + self.places  # (N,), among the B·T
        # Attention is called once for all documents of one length: (b documents, length t).
        counted = zip(*lengths[lengths > 0].unique(return_counts=True))
        self.calls = [(count.item(), length.item()) for length, count in counted]
        self.plans = {}  # {half window: plan}; layers with the same half window share one
        # The kernel for GPUs is told where documents end. It counts distances by token, so it can
        # be used only if no document has padding in between.
        ends = F.pad(lengths[order].cumsum(0), (1, 0)).int()  # (B + 1,)
        steps = self.places.diff()[documents.diff() == 0]  # between neighbours of one document
        self.without_gaps = len(documents) > 0 and bool((steps == 1).all())
        self.index, self.positions, self.ends = (
            part.to(device, non_blocking=True) for part in (self.numbers, self.places, ends)
        )

    def take(self, rows):
        """The rows (B, T, ...) in this form, (N, ...)."""
        return rows.flatten(0, 1).index_select(0, self.index)

    def put(self, rows):
        """Rows (N, ...) back in the padded form (B, T, ...), with 0 at padding."""
        full = rows.new_zeros(self.shape.numel(), *rows.shape[1:])
        return full.index_copy(0, self.index, rows).unflatten(0, self.shape)

    def pick(self, rows, select):
        """The rows of (N, H) that `select` would pick of the padded form (B, T, H).

        The padded form is not made: `select` is given a tensor (B, T, 1) that holds the number of
        each row among the N, and −1 at padding.

        Returns:
            (..., H), 0 where `select` picked padding.
        """
        numbers = torch.full(self.shape, -1).view(-1)
        numbers[self.numbers] = torch.arange(len(self.numbers))
        numbers = select(numbers.view(*self.shape, 1)).squeeze(-1)  # (...)
        if not len(rows):
            return rows.new_zeros(*numbers.shape, rows.shape[-1])
        at_padding, numbers = numbers < 0, numbers.clamp(min=0).to(rows.device, non_blocking=True)
        picked = rows[numbers]  # (..., H)
        if not at_padding.any():
            return picked
        return picked.masked_fill(at_padding.to(rows.device)[..., None], 0.0)

    def mix(self, query, key, value, attend, half_window=None, *, dropout_p=0.0):
        """Attention within each document.

        There are three ways to compute it, and the first that can be used is used: a kernel for all
        documents at once, on a GPU; for long documents with a half window, window by window; and
        otherwise one call of `attend` for all documents of one length.

        Args:
            query, key, value: (N, A, D).
            attend, half_window, dropout_p: as for `Padded.mix`.

        Returns:
            The mixed values (N, A·D), and None in place of the weights.
        """
        if self._kernel_fits(query, dropout_p):
            return self._mix_in_kernel(query, key, value, half_window), None
        sizes = [b * t for b, t in self.calls]  # how many of the N tokens each call has
        by_call = zip(self.calls, *(part.split(sizes) for part in (query, key, value)))
        mixed = []
        for (call, *parts), (in_windows, mask) in zip(by_call, self._plan(half_window, query)):
            # From (b·t, A, D) to (b, A, t, D).
            q, k, v = (part.view(*call, *part.shape[1:]).transpose(1, 2) for part in parts)
            if in_windows:
                found = _mix_in_windows(q, k, v, mask, attend, half_window, dropout_p)
            else:
                found, _ = attend(q, k, v, mask, dropout_p=dropout_p)
            mixed.append(found.transpose(1, 2).flatten(0, 1))  # (b·t, A, D)
        return (torch.cat(mixed) if mixed else query).flatten(1), None

    def _kernel_fits(self, query, dropout_p):
        """Whether torch's kernel can be used: in half precision on CUDA, and without dropout."""
        half = query.dtype in (torch.bfloat16, torch.float16)
        on_gpu = query.device.type == "cuda"
        return on_gpu and half and bool(varlen_attn) and self.without_gaps and not dropout_p

    def _mix_in_kernel(self, query, key, value, half_window):
        """Attention in one call for all documents: (N, A, D) thrice to (N, A·D)."""
        window = (-1, -1) if half_window is None else (half_window, half_window)
        longest = self.calls[-1][1]
        parts = (part.contiguous() for part in (query, key, value))
        sizes = self.ends, self.ends, longest, longest
        return varlen_attn(*parts, *sizes, window_size=window).flatten(1)

    def _plan(self, half_window, query):
        """For each call, whether it goes window by window, and its mask on the device of `query`.

        A mask is None where every token may attend to its whole document.
        """
        if half_window not in self.plans:
            plan, sizes = [], [b * t for b, t in self.calls]
            for places, call in zip(self.places.split(sizes), self.calls):
                in_windows, mask = _plan_of_call(places.view(call), half_window)
                if mask is not None:
                    mask = mask.to(query.device, non_blocking=True)
                plan.append((in_windows, mask))
            self.plans[half_window] = plan
        return self.plans[half_window]


def _plan_of_call(positions, half_window):
    """Whether documents of one length go window by window, and the mask of their attention.

    Args:
        positions: (b, t), of each token in its row.
        half_window: as for `Padded.mix`.

    Returns:
        (False, None) where every token may attend to its whole document; otherwise (False, a mask
        (b, 1, t, t)), or (True, the mask that `_mix_in_windows` takes).
    """
    t = positions.shape[1]
    if half_window is None or (positions[:, -1] - positions[:, 0]).max() <= half_window:
        return False, None
    if t < LONG_DOCUMENT * half_window:
        near = (positions[:, :, None] - positions[:, None]).abs() <= half_window  # (b, t, t)
        return False, near[:, None]
    positions = positions[:, None, :, None]  # (b, 1, t, 1), as if A and D were 1
    asking = _pieces(positions, half_window, FAR_AWAY)
    asked = _windows(positions, half_window, FAR_AWAY)
    return True, (asking - asked.transpose(-1, -2)).abs() <= half_window


def _pieces(rows, half_window, filler):
    """Documents cut into n pieces of two half windows; the last piece is filled up.

    (b, A, t, D) to (b·n, A, 2·half_window, D).
    """
    wide = 2 * half_window
    more = -rows.shape[2] % wide
    pieces = F.pad(rows, (0, 0, 0, more), value=filler).unflatten(2, (-1, wide))
    return pieces.transpose(1, 2).flatten(0, 1)


def _windows(rows, half_window, filler):
    """For each of the `_pieces` all that it may attend to: the piece and a half window around it.

    Tokens of a document are at least as far apart by position as by number, so that no other token
    is near enough. (b, A, t, D) to (b·n, A, 4·half_window, D).
    """
    wide = 2 * half_window
    more = -rows.shape[2] % wide
    around = F.pad(rows, (0, 0, half_window, more + half_window), value=filler)
    around = around.unfold(2, 2 * wide, wide).transpose(-1, -2)  # (b, A, n, 4·half_window, D)
    return around.transpose(1, 2).flatten(0, 1)


def _mix_in_windows(query, key, value, mask, attend, half_window, dropout_p):
    """Attention of long documents: (b, A, t, D) thrice to (b, A, t, D).

    It costs t times the width of the window, and not t times t.
    """
    b, _, t, _ = query.shape
    asking = _pieces(query, half_window, 0)
    keys, values = (_windows(part, half_window, 0) for part in (key, value))
    mixed, _ = attend(asking, keys, values, mask, dropout_p=dropout_p)  # (b·n, A, 2·half_window, D)
    mixed = mixed.transpose(1, 2).unflatten(0, (b, -1)).flatten(1, 2)  # (b, t and more, A, D)
    return mixed[:, :t].transpose(1, 2)
