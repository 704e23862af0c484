"""A kernel that starts with this file (PYTHONSTARTUP) says so after each cell, once one has drawn
from torch's generator before it was seeded. Such a cell may hold today and fail tomorrow. It also
finds no accelerator, as all that is compared with what is stored."""

import cpu_only  # IPython puts this folder on the path while it runs this file


def watch():
    import torch
    from IPython import get_ipython

    first, state, seed = torch.initial_seed(), torch.get_rng_state(), torch.manual_seed
    drawn = []

    def look():
        if torch.initial_seed() == first and not torch.equal(torch.get_rng_state(), state):
            drawn.append(True)

    def manual_seed(value):
        look()  # a cell may draw first and seed then
        return seed(value)

    def tell(_):
        look()
        if drawn:
            print("A cell has drawn random numbers before torch.manual_seed was called.")

    torch.manual_seed = manual_seed
    get_ipython().events.register("post_run_cell", tell)


watch()
del watch, cpu_only
