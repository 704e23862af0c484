"""One step over all weights: AdamW, and beside it Muon or SparseAdam for what suits them better.

AdamW takes what has a dense gradient (lesson 08), SparseAdam what has a sparse one, and Muon, if it
is asked for, the matrices inside the network (lesson 15). Built in lesson 11.
"""

import torch
from torch import distributed

SPARSE, MUON = "sparse", "muon"  # where a state dictionary has that of SparseAdam, that of Muon


def sparse_weights(model):
    """Names of the weights whose gradients are sparse, known before there is one.

    A module says so by its attribute `sparse`, as `nn.Embedding(..., sparse=True)` and
    `SampledSoftmaxLoss(..., sparse=True)` do. Where another module without it holds the weight as
    well, such as a tied matrix, the two gradients add up to a dense one.

    >>> sparse_weights(torch.nn.Sequential(torch.nn.Embedding(9, 2, sparse=True)))
    ['0.weight']
    """
    said = {}
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            said.setdefault(weight, []).append(getattr(module, "sparse", False) is True)
    return [name for name, weight in model.named_parameters() if all(said[weight])]


def inner_matrices(model):
    """Names of the matrices that Muon takes: those of linear layers, but for a table of words.

    A matrix that an embedding shares is such a table, and so is a linear layer named `decoder`.

    >>> inner_matrices(torch.nn.Sequential(torch.nn.Embedding(9, 2), torch.nn.Linear(2, 2)))
    ['1.weight']
    """
    tables = set()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Embedding) or name.rpartition(".")[2] == "decoder":
            tables.update(module.parameters(recurse=False))
    linear = {m.weight for m in model.modules() if isinstance(m, torch.nn.Linear)} - tables
    return [name for name, weight in model.named_parameters() if weight in linear]


class Optimizers:
    """AdamW, and beside it SparseAdam if the model has `sparse_weights`, Muon if it is asked for.

    AdamW decays matrices only (Loshchilov & Hutter 2019). SparseAdam's step is that of Adam in the
    rows that the gradient holds; the other rows, and their running means, stay as they are. Weights
    with sparse gradients are not decayed: to shrink every row would cost as much as a dense
    gradient, and to shrink the touched ones alone would decay frequent words more than rare ones.

    Muon (Jordan et al. 2024) steps by the running mean of a matrix's gradient with all its singular
    values made equal, nearly. Scaled so that its numbers are as large as AdamW's (Liu et al. 2025),
    it can take the same learning rate. torch's is used, of `inner_matrices`; AdamW has the rest.

    Args:
        model: the module to train.
        config: a `TrainingConfig`, of which `optimizer`, `learning_rate`,
            `inner_learning_rate`, `betas`, `eps` and `weight_decay` are used.
        device: where the weights are.

    Attributes:
        weights: those that are trained, by name.
        sparse: the names of those whose gradients are sparse.
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
        # Fused: one pass over all weights.
        self.adamw = torch.optim.AdamW(groups, **options, fused=device.type in ("cpu", "cuda"))
        self.beside, self.scale = {}, (config.inner_learning_rate or options["lr"]) / options["lr"]
        if self.sparse:
            rows = [self.weights[name] for name in sorted(self.sparse)]
            self.beside[SPARSE] = torch.optim.SparseAdam(rows, **options)
        if inner:
            self.beside[MUON] = torch.optim.Muon(
                [self.weights[name] for name in inner], lr=config.learning_rate,
                weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw",
            )  # fmt: skip
        self.all = [self.adamw, *self.beside.values()]
        self.zero_grad()  # of gradients that were left from before

    def average(self, processes):
        """Makes each gradient the mean of the gradients that the processes have for its weight."""
        for weight in self.weights.values():
            if weight.grad is not None:
                distributed.all_reduce(weight.grad)
                weight.grad /= processes

    def rounded_away(self, rate):
        """The share of the trained numbers that a step as large as `rate` would leave as they are.

        A step of AdamW changes a number by about the learning rate. A number of 16 bits has only 8
        or 11 binary digits, so that a change below a few thousandths of the number is rounded away.
        """
        still = numbers = 0
        for weight in self.weights.values():
            numbers += weight.numel()
            if weight.dtype in (torch.bfloat16, torch.float16):
                still += (weight.detach() + rate == weight.detach()).count_nonzero().item()
        return still / max(1, numbers)

    def clip(self, max_norm):
        """Scales all gradients together down to a norm; the norm before, a tensor of no axes."""
        if not self.sparse:
            return torch.nn.utils.clip_grad_norm_(self.weights.values(), max_norm)
        numbers = []
        for weight in self.weights.values():
            if weight.grad is not None and weight.grad.is_sparse:
                weight.grad = weight.grad.coalesce()  # each row once, or its parts would be squared
                numbers.append(weight.grad.values())
            elif weight.grad is not None:
                numbers.append(weight.grad)
        norm = torch.nn.utils.get_total_norm(numbers)
        torch._foreach_mul_(numbers, (max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def step(self, rate):
        """One step at a learning rate. Muon's follows the same schedule, up to its own highest."""
        for optimizer in self.all:
            for group in optimizer.param_groups:
                group["lr"] = rate * (self.scale if optimizer is self.beside.get(MUON) else 1.0)
            optimizer.step()

    def zero_grad(self):
        """Forgets all gradients."""
        for optimizer in self.all:
            optimizer.zero_grad()

    def state_dict(self):
        """AdamW's, and under `sparse` and `muon` those of the others, if there are any."""
        others = {name: optimizer.state_dict() for name, optimizer in self.beside.items()}
        return self.adamw.state_dict() | others

    def load_state_dict(self, state):
        """The way back from `state_dict`."""
        own = {name: part for name, part in state.items() if name not in (SPARSE, MUON)}
        self.adamw.load_state_dict(own)
        for name, optimizer in self.beside.items():
            optimizer.load_state_dict(state[name])
