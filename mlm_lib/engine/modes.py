"""Keeps the mode of each module of a model, training or evaluation, during a measurement."""

from contextlib import contextmanager


@contextmanager
def modes_kept(model):
    """Puts each module back into its mode, training or evaluation, when the block ends::

        with modes_kept(model):
            model.eval()
            loss = model(**batch)["loss"]

    An evaluation calls `model.eval()`, which turns dropout off in all modules. If `model.train()`
    were called afterwards, dropout would be on in all modules, even in those that were in
    evaluation mode before.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
