"""Finds cells that draw random numbers before torch is seeded. `course.py test` names this file in
PYTHONSTARTUP, so that each kernel runs it at its start.

Such a cell prints other numbers in each process. Once a cell has done so, the kernel prints a line
after each cell. No notebook has stored this line, so the comparison fails. The file also hides all
GPUs, because the stored outputs were computed on a CPU.
"""

import cpu_only  # IPython puts the folder of this file on the path while it runs the file


def watch():
    import torch
    from IPython import get_ipython

    first, state, seed = torch.initial_seed(), torch.get_rng_state(), torch.manual_seed
    drawn = []

    def look():
        if torch.initial_seed() == first and not torch.equal(torch.get_rng_state(), state):
            drawn.append(True)

    def manual_seed(value):
        look()  # a cell may draw first and seed afterwards
        return seed(value)

    def tell(_):
        look()
        if drawn:
            print("A cell has drawn random numbers before torch.manual_seed was called.")

    torch.manual_seed = manual_seed
    get_ipython().events.register("post_run_cell", tell)


watch()
del watch, cpu_only
