"""The precision in which a training step is faster on this machine: float32 or bfloat16.

A CPU may have instructions for bfloat16 and still be slower with them than with float32. Therefore
`precision_taken` does not rely on what a CPU says that it can do. It measures the time.
"""

import time
from functools import cache

import torch
import torch.nn.functional as F

# One linear layer of a small BERT, forward and backward: N rows, H inputs, O outputs.
ROWS, INPUTS, OUTPUTS = 256, 256, 1024
REPEATS = 7  # for each precision, after one repetition that is not counted


def precision_taken(device="auto"):
    """The precision that `precision="auto"` takes on this machine, and the reason.

    If a CPU has instructions for bfloat16, a small linear layer is timed in both precisions. This
    takes about a tenth of a second and is done once in a process. On a GPU nothing is timed. A
    resumed run does not ask again: it goes on in the precision in which it began.

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
    """Whether the hardware has instructions for bfloat16. Without them bfloat16 is emulated, which
    is slow."""
    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    able = torch.cpu.get_capabilities() if torch.device(device).type == "cpu" else {}
    return any(map(able.get, ("avx512_bf16", "amx_bf16", "bf16")))


def device_taken():
    """The device that `device="auto"` means: a GPU if there is one, otherwise the CPU."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


@cache
def layer_times(threads):
    """The seconds of a linear layer's forward and backward pass on the CPU, in fp32 and in bf16.

    The two precisions alternate, so that other programs on the machine slow both of them down. No
    random number is drawn, so the training is the same whether or not times were measured.

    Args:
        threads: the number of threads that torch uses. The result is kept for each number
            of threads.
    """
    inputs = torch.full((ROWS, INPUTS), 0.5, requires_grad=True)
    weight = torch.full((OUTPUTS, INPUTS), 0.5, requires_grad=True)
    times = {False: [], True: []}
    for _ in range(1 + REPEATS):
        for bf16, taken in times.items():
            begin = time.perf_counter()
            with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                outputs = F.linear(inputs, weight)  # (N, O)
            torch.autograd.grad(outputs, (inputs, weight), torch.ones_like(outputs))
            taken.append(time.perf_counter() - begin)
    # The shortest time is taken, because other programs can only make a repetition longer.
    return tuple(min(taken[1:]) for taken in times.values())
