"""A kernel that starts with this file (PYTHONSTARTUP) finds no accelerator in torch.

Variables of the environment hide every other kind, but none hides Apple's MPS. Here torch is told
that there is none, where mlm_lib, transformers and accelerate ask for one.
"""


def hide_accelerators():
    import torch

    torch.backends.mps.is_available = lambda: False
    torch.accelerator.is_available = lambda: False
    torch.accelerator.current_accelerator = lambda check_available=False: None


hide_accelerators()
del hide_accelerators
