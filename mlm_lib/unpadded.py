"""A batch without its padding: documents in one row, unable to see one another. In lesson 16.

A layer that treats each token by itself does not ask where documents end, so it gets the real
tokens of all of them in one row, (N, H) instead of (B, T, H). Only attention has to know, and mixes
each document by itself. Portes et al. (2023) and ModernBERT (Warner et al. 2024) do the same with a
kernel for accelerators, which torch has since 2.10; on a processor one call for the documents of
each length was the fastest of the ways that we measured (`python -m benchmarks.modern --ways`).
"""

import torch
import torch.nn.functional as F

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # an older torch: one call a length on every device
    varlen_attn = None

# Documents of so many reaches and more are read window by window. A piece of two reaches looks at
# four, so that from here on at most half of the pairs are computed, which pays for the cutting.
LONG = 8
NOWHERE = -(10**9)  # the position of what only fills up a window


class Padded:
    """The batch as it came, (B, T, ...): padding is computed, masked as a key, and set to 0.

    Args:
        real: (B, T) bool, or None if nothing is padded.
        shape: B and T.
        device: of the batch.
    """

    def __init__(self, real, shape, device):
        self.real = real
        self.positions = torch.arange(shape[1], device=device)  # (T,), of tokens in their rows
        self.masks = {}

    def take(self, rows):
        """(B, T, ...) in this layout."""
        return rows

    def put(self, rows, select=None):
        """The way back from `take`, 0 at padding; with `select`, only the rows that it picks."""
        if self.real is not None:
            rows = rows.masked_fill(~self.real[..., None], 0.0)
        return rows if select is None else select(rows)

    pick = put

    def mix(self, query, key, value, attend, reach=None, **how):
        """Values mixed by attention: (B, T, A, D) thrice to (B, T, A·D), and the weights or None.

        Args:
            attend: called with (B, A, T, D) thrice and a mask, [query, key], or None.
            reach: how far to each side a token sees; None for the whole document.
            how: what else `attend` is given, such as its `share`.
        """
        parts = (part.transpose(1, 2) for part in (query, key, value))
        mixed, weights = attend(*parts, self._mask(reach), **how)
        return mixed.transpose(1, 2).flatten(2), weights

    def _mask(self, reach):
        """(B or 1, 1, T or 1, T) bool, or None; in each line of it something is True."""
        if reach not in self.masks:
            keys = None
            if self.real is not None:  # a row of padding alone sees all of it, rather than nothing
                keys = (self.real | ~self.real.any(1, keepdim=True))[:, None, None]
            if reach is not None:
                distance = (self.positions[:, None] - self.positions).abs()  # (T, T)
                near = (distance <= reach)[None, None]
                keys = near if keys is None else near & keys | (distance == 0)
            self.masks[reach] = keys
        return self.masks[reach]


class Unpadded:
    """Only the real tokens, (N, ...), document after document, the shortest first.

    Positions are those in the padded row, so that a document with holes keeps its distances.

    Args:
        real: (B, T) bool, on a processor: all is planned there, and no device is waited for.
        device: of the batch.
    """

    def __init__(self, real, device="cpu"):
        self.shape = real.shape
        lengths = real.sum(1)  # (B,)
        order = lengths.argsort(stable=True)
        rows, self.places = real[order].nonzero(as_tuple=True)  # (N,) each, the latter in its row
        self.numbers = order[rows] * real.shape[1] + self.places  # (N,), among the B·T
        # Documents of one length are mixed in one call: (b, t) of each call.
        counted = zip(*lengths[lengths > 0].unique(return_counts=True))
        self.calls = [(count.item(), length.item()) for length, count in counted]
        self.plans = {}
        # For the kernel: where documents end, and whether there is something in them, and no hole.
        ends = F.pad(lengths[order].cumsum(0), (1, 0)).int()  # (B + 1,)
        self.solid = len(rows) > 0 and bool((self.places.diff() == 1)[rows.diff() == 0].all())
        self.index, self.positions, self.ends = (
            some.to(device, non_blocking=True) for some in (self.numbers, self.places, ends)
        )

    def take(self, rows):
        """(B, T, ...) to (N, ...)."""
        return rows.flatten(0, 1).index_select(0, self.index)

    def put(self, rows):
        """(N, ...) to (B, T, ...), 0 at padding."""
        full = rows.new_zeros(self.shape.numel(), *rows.shape[1:])
        return full.index_copy(0, self.index, rows).unflatten(0, self.shape)

    def pick(self, rows, select):
        """Those of (N, H) that `select` picks of (B, T, H): it is shown their numbers instead."""
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

    def mix(self, query, key, value, attend, reach=None, **how):
        """Values mixed by attention: (N, A, D) thrice to (N, A·D), and None for the weights.

        Arguments as of `Padded.mix`; here `attend` is called for the b documents of each length t,
        with (b, A, t, D). On CUDA one kernel does it for all lengths, in half precision and where
        no weights are dropped, which it cannot.
        """
        half = query.dtype in (torch.bfloat16, torch.float16)
        if (
            query.device.type == "cuda"
            and half
            and varlen_attn
            and self.solid
            and not how.get("share")
        ):
            window = (-1, -1) if reach is None else (reach, reach)
            sizes = self.ends, self.ends, self.calls[-1][1], self.calls[-1][1]
            parts = (part.contiguous() for part in (query, key, value))
            return varlen_attn(*parts, *sizes, window_size=window).flatten(1), None
        sizes, mixed = [b * t for b, t in self.calls], []
        if reach not in self.plans:  # which layers of the same reach share
            places = zip(self.places.split(sizes), self.calls)
            looks = [_look(part.view(call), reach) for part, call in places]
            self.plans[reach] = [(wide, _sent(mask, query.device)) for wide, mask in looks]
        parts = zip(*(part.split(sizes) for part in (query, key, value)))
        for some, call, (windows, mask) in zip(parts, self.calls, self.plans[reach]):
            some = (part.view(*call, *part.shape[1:]).transpose(1, 2) for part in some)
            if windows:
                mixed.append(_mix_windows(*some, mask, attend, reach, how).flatten(0, 1))
            else:  # of (b, A, t, D) thrice
                mixed.append(attend(*some, mask, **how)[0].transpose(1, 2).flatten(0, 1))
        return (torch.cat(mixed) if mixed else query).flatten(1), None


def _sent(mask, device):
    return mask if mask is None else mask.to(device, non_blocking=True)


def _look(positions, reach):
    """Whether documents (b, t) of one length are mixed window by window, and their mask or None."""
    t = positions.shape[1]
    if reach is None or (positions[:, -1] - positions[:, 0]).max() <= reach:
        return False, None
    if t < LONG * reach:
        near = (positions[:, :, None] - positions[:, None]).abs() <= reach  # (b, t, t)
        return False, near[:, None]
    asking, asked = _windows(positions[:, None, :, None], reach, NOWHERE)  # of D = 1
    return True, (asking - asked.transpose(-1, -2)).abs() <= reach


def _windows(rows, reach, filler):
    """Rows cut into pieces of 2·reach, and with each piece all that it may see.

    (b, A, t, D) to (b·n, A, 2·reach, D) and (b·n, A, 4·reach, D), filled up at both ends. Tokens of
    a document are at least as far apart by position as by number, so no one else is near.
    """
    b, heads, t, size = rows.shape
    wide = 2 * reach
    more = -t % wide
    pieces = F.pad(rows, (0, 0, 0, more), value=filler).unflatten(2, (-1, wide))
    around = F.pad(rows, (0, 0, reach, more + reach), value=filler).unfold(2, 2 * wide, wide)
    around = around.transpose(-1, -2)  # (b, A, n, 4·reach, D)
    return [part.transpose(1, 2).flatten(0, 1) for part in (pieces, around)]


def _mix_windows(query, key, value, mask, attend, reach, how):
    """Attention that costs t times the window, not t times t. (b, A, t, D) to (b, t, A, D)."""
    b, _, t, _ = query.shape
    asking = _windows(query, reach, 0)[0]
    mixed, _ = attend(asking, *(_windows(part, reach, 0)[1] for part in (key, value)), mask, **how)
    return mixed.transpose(1, 2).unflatten(0, (b, -1)).flatten(1, 2)[:, :t]
