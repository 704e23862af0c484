"""Hides Apple's GPU from torch. `course.py test` names this file in PYTHONSTARTUP, so that each
kernel runs it at its start.

Variables of the environment hide all other kinds of GPU, but no variable hides Apple's MPS. So the
functions of torch are replaced by which mlm_lib, transformers and accelerate look for a GPU.
"""


def hide_accelerators():
    import torch

    torch.backends.mps.is_available = lambda: False
    torch.accelerator.is_available = lambda: False
    torch.accelerator.current_accelerator = lambda check_available=False: None


hide_accelerators()
del hide_accelerators
