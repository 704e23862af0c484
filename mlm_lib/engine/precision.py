"""The precision in which a training step is faster on this machine. Built in lesson 08.

A processor may have instructions for bfloat16 and still be slower with them than with float32. So
`precision_taken` does not trust what a processor says that it can do. It measures the time.
"""

import time
from functools import cache

import torch
import torch.nn.functional as F

# One linear layer of a small BERT, forward and backward: N rows, H inputs, O outputs.
ROWS, INPUTS, OUTPUTS = 256, 256, 1024
TURNS = 7  # of each precision, after one that is not counted


def precision_taken(device="auto"):
    """The precision that `precision="auto"` takes here, and why.

    On a processor that has instructions for bfloat16 a small linear layer is timed in both
    precisions, once in a process, which takes about a tenth of a second. A resumed run does not ask
    again: it goes on in the precision in which it began.

    Args:
        device: "auto", "cpu", "cuda", "mps", or a torch.device.

    Returns:
        (name, reason): "fp32" or "bf16", and a clause to print after "because".
    """
    device = torch.device(device_taken() if device == "auto" else device)
    what = "processor" if device.type == "cpu" else f"{device.type} device"
    if not native_bf16(device):
        return "fp32", f"this {what} has no instructions for bfloat16"
    if device.type != "cpu":
        return "bf16", f"this {what} has instructions for bfloat16"
    fp32, bf16 = (1000 * seconds for seconds in layer_times(torch.get_num_threads()))
    name, word = ("bf16", "only") if bf16 < fp32 else ("fp32", "even")
    return name, (
        f"a linear layer's forward and backward pass takes {fp32:.1f} ms in fp32 "
        f"and {word} {bf16:.1f} ms in bf16 on this processor"
    )


def native_bf16(device="cpu"):
    """Whether the hardware multiplies bfloat16 itself; elsewhere it is emulated, and slower."""
    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    able = torch.cpu.get_capabilities() if torch.device(device).type == "cpu" else {}
    return any(map(able.get, ("avx512_bf16", "amx_bf16", "bf16")))


def device_taken():
    """The device of "auto": an accelerator where there is one, otherwise the CPU."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


@cache
def layer_times(threads):
    """Seconds of a linear layer's forward and backward pass on the CPU, in fp32 and in bf16.

    The two precisions take turns, so that other work of the machine slows both of them. No random
    number is drawn. `threads` is the number of threads that torch has: an answer is kept for each
    number.
    """
    inputs = torch.full((ROWS, INPUTS), 0.5, requires_grad=True)
    weight = torch.full((OUTPUTS, INPUTS), 0.5, requires_grad=True)
    times = {False: [], True: []}
    for _ in range(1 + TURNS):
        for bf16, taken in times.items():
            begin = time.perf_counter()
            with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                outputs = F.linear(inputs, weight)  # (N, O)
            torch.autograd.grad(outputs, (inputs, weight), torch.ones_like(outputs))
            taken.append(time.perf_counter() - begin)
    # The shortest turn: whatever else the machine does can only make a turn longer.
    return tuple(min(taken[1:]) for taken in times.values())
