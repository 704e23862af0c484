"""The modes of a model, training and evaluation, which a measurement puts back when it is done."""

from contextlib import contextmanager


@contextmanager
def modes_kept(model):
    """Puts each module back into its mode, training or evaluation, when the block ends::

        with modes_kept(model):
            model.eval()
            loss = model(**batch)["loss"]

    An evaluation calls `model.eval()`, which turns dropout off in all modules. To call
    `model.train()` afterwards would turn it on in all modules, also in those that were in
    evaluation mode before.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
