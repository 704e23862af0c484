"""The optimizers of a run: AdamW and, if they are needed, SparseAdam and Muon. Built in lesson 12.

AdamW trains most weights; the lesson on pretraining builds it. SparseAdam trains the weights that
have sparse gradients, such as those of the lesson on sampled softmax. Muon trains the matrices
inside the network if the settings ask for it, as in the lesson on writing.
"""

import torch
from torch import distributed

# The names under which a state dictionary holds the states of SparseAdam and of Muon.
SPARSE, MUON = "sparse", "muon"


def sparse_weights(model):
    """The names of the weights whose gradients will be sparse.

    A gradient is sparse if it lists only the rows of a matrix that a batch used. A module has
    sparse gradients if its attribute `sparse` is True, as in `nn.Embedding(..., sparse=True)` and
    `SampledSoftmaxLoss(..., sparse=True)`. If a weight is tied to another module without this
    attribute, the gradient of the weight is dense, because the sum of a sparse and a dense gradient
    is dense.

    >>> sparse_weights(torch.nn.Sequential(torch.nn.Embedding(9, 2, sparse=True)))
    ['0.weight']
    """
    is_sparse = {}  # for each weight, what the modules say that hold it
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            is_sparse.setdefault(weight, []).append(getattr(module, "sparse", False) is True)
    return [name for name, weight in model.named_parameters() if all(is_sparse[weight])]


def inner_matrices(model):
    """The names of the matrices that Muon trains: those of the linear layers inside the network.

    Matrices with one row for each token of the vocabulary are left out. Such a matrix is an
    embedding, a linear layer that is tied to an embedding, or a linear layer named `decoder`.

    >>> inner_matrices(torch.nn.Sequential(torch.nn.Embedding(9, 2), torch.nn.Linear(2, 2)))
    ['1.weight']
    """
    tables = set()  # matrices with a row for each token
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Embedding) or name.rpartition(".")[2] == "decoder":
            tables.update(module.parameters(recurse=False))
    linear = {m.weight for m in model.modules() if isinstance(m, torch.nn.Linear)} - tables
    return [name for name, weight in model.named_parameters() if weight in linear]


class Optimizers:
    """AdamW, together with SparseAdam if the model has `sparse_weights`, and with Muon if the
    settings ask for it.

    The training loop treats all of them as one optimizer::

        optimizers = Optimizers(model, config, torch.device("cpu"))
        model(**batch)["loss"].backward()
        optimizers.clip(1.0)
        optimizers.step(1e-3)
        optimizers.zero_grad()

    **AdamW** applies weight decay (Loshchilov & Hutter 2019) to matrices only, not to biases and
    layer norms.

    **SparseAdam** takes the step of Adam in the rows that the gradient lists. The other rows, and
    their running means, stay as they are. Weights with sparse gradients do not decay: to decay
    every row would cost as much as a dense gradient, and to decay only the listed rows would decay
    frequent words more than rare words.

    **Muon** (Jordan et al. 2024) replaces the running mean of a matrix's gradient by a matrix whose
    singular values are all nearly equal. With the scale of Liu et al. (2025) the steps of Muon are
    as large as those of AdamW, so that both optimizers can have the same learning rate. The class
    is `torch.optim.Muon`. Muon trains the `inner_matrices`; AdamW trains all other weights.

    Args:
        model: the module to train.
        config: a `TrainingConfig`. Its `optimizer`, `learning_rate`, `inner_learning_rate`,
            `betas`, `eps` and `weight_decay` are used.
        device: the torch.device of the weights.

    Attributes:
        weights: the trained weights by name. A weight is trained if its `requires_grad` is True.
        sparse: the names of the trained weights that have sparse gradients.
    """

    def __init__(self, model, config, device):
        self.weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.sparse = {name for name in sparse_weights(model) if name in self.weights}
        inner = set(inner_matrices(model)) - self.sparse if config.optimizer == "muon" else set()
        inner = [name for name in self.weights if name in inner]
        dense = [p for name, p in self.weights.items() if name not in {*self.sparse, *inner}]
        groups = [
            {"params": [p for p in dense if p.dim() >= 2], "weight_decay": config.weight_decay},
            {"params": [p for p in dense if p.dim() < 2], "weight_decay": 0.0},
        ]
        options = {"lr": config.learning_rate, "betas": config.betas, "eps": config.eps}
        # `fused` means that one kernel updates all weights.
        self.adamw = torch.optim.AdamW(groups, **options, fused=device.type in ("cpu", "cuda"))
        # Muon's learning rate, as a multiple of AdamW's.
        self.scale = (config.inner_learning_rate or options["lr"]) / options["lr"]
        self.beside = {}
        if self.sparse:
            rows = [self.weights[name] for name in sorted(self.sparse)]
            self.beside[SPARSE] = torch.optim.SparseAdam(rows, **options)
        if inner:
            self.beside[MUON] = torch.optim.Muon(
                [self.weights[name] for name in inner], lr=config.learning_rate,
                weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw",
            )  # fmt: skip
        self.all = [self.adamw, *self.beside.values()]
        self.zero_grad()  # the model may come with gradients

    def average(self, processes):
        """Replaces each gradient by its mean over all processes. Each process must call it."""
        for weight in self.weights.values():
            if weight.grad is not None:
                distributed.all_reduce(weight.grad)
                weight.grad /= processes

    def rounded_away(self, rate):
        """The fraction of the trained numbers that a step of this learning rate cannot change.

        A step of AdamW changes a number by about the learning rate. A number of 16 bits has only 8
        or 11 binary digits, so that a change of less than a few thousandths of the number is lost
        by rounding.
        """
        unchanged = numbers = 0
        for weight in self.weights.values():
            numbers += weight.numel()
            if weight.dtype in (torch.bfloat16, torch.float16):
                unchanged += (weight.detach() + rate == weight.detach()).count_nonzero().item()
        return unchanged / max(1, numbers)

    def clip(self, max_norm):
        """Scales all gradients by the same factor, so that their norm is at most `max_norm`.

        Returns:
            The norm before scaling, a tensor without axes.
        """
        if not self.sparse:
            return torch.nn.utils.clip_grad_norm_(self.weights.values(), max_norm)
        numbers = []
        for weight in self.weights.values():
            if weight.grad is not None and weight.grad.is_sparse:
                # A row may be listed twice. Its entries must be added before they are squared.
                weight.grad = weight.grad.coalesce()
                numbers.append(weight.grad.values())
            elif weight.grad is not None:
                numbers.append(weight.grad)
        norm = torch.nn.utils.get_total_norm(numbers)
        torch._foreach_mul_(numbers, (max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def step(self, rate):
        """Changes the weights by one step.

        Args:
            rate: the learning rate of this step. The learning rate of Muon follows the same
                schedule: it is `rate` times `inner_learning_rate / learning_rate`.
        """
        for optimizer in self.all:
            for group in optimizer.param_groups:
                group["lr"] = rate * (self.scale if optimizer is self.beside.get(MUON) else 1.0)
            optimizer.step()

    def zero_grad(self):
        """Deletes all gradients."""
        for optimizer in self.all:
            optimizer.zero_grad()

    def state_dict(self):
        """The state of AdamW, with the state of SparseAdam under "sparse" and the state of Muon
        under "muon".
        """
        others = {name: optimizer.state_dict() for name, optimizer in self.beside.items()}
        return self.adamw.state_dict() | others

    def load_state_dict(self, state):
        """Loads what `state_dict` returned."""
        own = {name: part for name, part in state.items() if name not in (SPARSE, MUON)}
        self.adamw.load_state_dict(own)
        for name, optimizer in self.beside.items():
            optimizer.load_state_dict(state[name])
