"""Batches without padding: all real tokens in one row, while documents stay apart in attention.

Most layers treat each token by itself. Such a layer does not have to know where a document ends, so
it is given the real tokens of all documents in one row, (N, H) instead of (B, T, H). Only attention
has to know where documents end, because tokens attend only to tokens of their own document. A batch
has one of two forms: `Padded`, with padding, or `Unpadded`, without. Both classes have the same
methods, so an encoder does not have to know which form a batch has.

Portes et al. (2023) and ModernBERT (Warner et al. 2024) compute no padding either, with a kernel
for GPUs; torch has had such a kernel since version 2.10. On a CPU, one call of attention for all
documents of one length was the fastest of the ways that we measured. To measure them again, run
`python -m benchmarks.modern --ways`. Built in lesson 18.
"""

import torch
import torch.nn.functional as F

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # an older torch, which has no such kernel
    varlen_attn = None

# Attention in a document of this many half windows, or more, is computed window by window. Each
# piece of two half windows attends to four half windows, so that from this length on at most half
# of all pairs are computed. This saves more time than it takes to cut the document into pieces.
LONG_DOCUMENT = 8
FAR_AWAY = -(10**9)  # the position of the filling at the ends of a window, which no token can see


class Padded:
    """A batch as it came, (B, T, ...). Padding is computed as well, but no real token attends to
    padding, and the results at padding are set to 0.

    Args:
        real: (B, T) bool, True at real tokens. None: there is no padding.
        shape: B and T.
        device: the device of the batch.
    """

    def __init__(self, real, shape, device):
        self.real = real
        self.positions = torch.arange(shape[1], device=device)  # (T,), of the tokens in their rows
        self.masks = {}  # {half window: mask}; layers with the same half window share one

    def take(self, rows):
        """Returns the rows (B, T, ...) unchanged, because this form keeps the padding."""
        return rows

    def put(self, rows, select=None):
        """The rows (B, T, ...) with 0 at padding; with `select`, only the vectors that `select`
        picks of them.
        """
        if self.real is not None:
            rows = rows.masked_fill(~self.real[..., None], 0.0)
        return rows if select is None else select(rows)

    pick = put

    def mix(self, query, key, value, attend, half_window=None, *, dropout_p=0.0):
        """Attention within each row.

        Args:
            query, key, value: (B, T, A, D).
            attend: the attention to use. This function is called with query, key and value
                (B, A, T, D), a mask indexed by [query, key] or None, and `dropout_p`. It returns
                mixed values and weights, as `encoder.attend` does.
            half_window: how many positions to each side a token attends to. None: the token attends
                to the whole document.
            dropout_p: the probability that an attention weight is dropped.

        Returns:
            The mixed values (B, T, A·D), and the weights that `attend` returned.
        """
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        mask = self._mask(half_window)
        mixed, weights = attend(query, key, value, mask, dropout_p=dropout_p)
        return mixed.transpose(1, 2).flatten(2), weights

    def _mask(self, half_window):
        """The keys that each query may attend to, (B or 1, 1, T or 1, T) bool. None: every query
        may attend to all keys.

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
    """Only the real tokens of a batch, (N, ...), one document after the other, the shortest
    document first.

    The position of a token is its position in the padded row. If there is padding between the
    tokens of a document, their distances therefore stay the same.

    Args:
        real: (B, T) bool, True at real tokens. The tensor has to be on the CPU, because all calls
            are planned from its values. Reading these values from a GPU would make Python wait each
            time until the GPU has finished.
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
        # The kernel for GPUs is given the places where documents end. The kernel counts distances
        # in tokens, so it can be used only if no document has padding between its tokens.
        ends = F.pad(lengths[order].cumsum(0), (1, 0)).int()  # (B + 1,)
        steps = self.places.diff()[documents.diff() == 0]  # between neighbours of one document
        self.without_gaps = len(documents) > 0 and bool((steps == 1).all())
        self.index, self.positions, self.ends = (
            part.to(device, non_blocking=True) for part in (self.numbers, self.places, ends)
        )

    def take(self, rows):
        """Takes the real tokens out of rows (B, T, ...), and returns them as (N, ...)."""
        return rows.flatten(0, 1).index_select(0, self.index)

    def put(self, rows):
        """Puts rows (N, ...) back into the padded form (B, T, ...), with 0 at padding."""
        full = rows.new_zeros(self.shape.numel(), *rows.shape[1:])
        return full.index_copy(0, self.index, rows).unflatten(0, self.shape)

    def pick(self, rows, select):
        """The rows of (N, H) that `select` would pick from the padded form (B, T, H).

        The padded form is not made. Instead, `select` is given a tensor (B, T, 1) that holds, for
        each real token, its number from 0 to N − 1, and −1 at padding.

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

        There are three ways to compute attention. On a GPU, a kernel computes all documents at
        once, if it can be used. Otherwise long documents with a half window are computed window by
        window. All other documents are computed by one call of `attend` for all documents of one
        length.

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
        """Attention in one call for all documents. The three arguments are (N, A, D), and the
        result is (N, A·D).
        """
        window = (-1, -1) if half_window is None else (half_window, half_window)
        longest = self.calls[-1][1]
        parts = (part.contiguous() for part in (query, key, value))
        sizes = self.ends, self.ends, longest, longest
        return varlen_attn(*parts, *sizes, window_size=window).flatten(1)

    def _plan(self, half_window, query):
        """For each call, whether attention is computed window by window, and the mask of the call
        on the device of `query`.

        A mask is None if every token may attend to its whole document.
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
    """Whether attention in documents of one length is computed window by window, and its mask.

    Args:
        positions: (b, t), the position of each token in its row.
        half_window: as for `Padded.mix`.

    Returns:
        (False, None) if every token may attend to its whole document; otherwise (False, mask), with
        the mask (b, 1, t, t), or (True, mask), with the mask that `_mix_in_windows` takes.
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
    """Cuts documents (b, A, t, D) into n pieces of two half windows, (b·n, A, 2·half_window, D).

    The last piece is filled up with `filler`.
    """
    wide = 2 * half_window
    more = -rows.shape[2] % wide
    pieces = F.pad(rows, (0, 0, 0, more), value=filler).unflatten(2, (-1, wide))
    return pieces.transpose(1, 2).flatten(0, 1)


def _windows(rows, half_window, filler):
    """For each of the `_pieces`, everything to which its tokens may attend: the piece itself and a
    half window on each side of it. Documents (b, A, t, D) give (b·n, A, 4·half_window, D).

    Two tokens of a document are at least as far apart in position as in number, so no token outside
    this window is near enough.
    """
    wide = 2 * half_window
    more = -rows.shape[2] % wide
    around = F.pad(rows, (0, 0, half_window, more + half_window), value=filler)
    around = around.unfold(2, 2 * wide, wide).transpose(-1, -2)  # (b, A, n, 4·half_window, D)
    return around.transpose(1, 2).flatten(0, 1)


def _mix_in_windows(query, key, value, mask, attend, half_window, dropout_p):
    """Attention of long documents. The three arguments and the result are (b, A, t, D).

    The cost is t times the width of the window, and not t times t.
    """
    b, _, t, _ = query.shape
    asking = _pieces(query, half_window, 0)
    keys, values = (_windows(part, half_window, 0) for part in (key, value))
    mixed, _ = attend(asking, keys, values, mask, dropout_p=dropout_p)  # (b·n, A, 2·half_window, D)
    mixed = mixed.transpose(1, 2).unflatten(0, (b, -1)).flatten(1, 2)  # (b, t and more, A, D)
    return mixed[:, :t].transpose(1, 2)
