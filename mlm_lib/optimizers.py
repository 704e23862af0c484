"""One step over all weights, also where the gradient of a large table holds a few rows only.

AdamW takes what has a dense gradient (lesson 08), SparseAdam what has a sparse one. Built in
lesson 11.
"""

import torch

SPARSE = "sparse"  # where a state dictionary has that of SparseAdam


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


class Optimizers:
    """AdamW, and SparseAdam beside it if the model has `sparse_weights`.

    AdamW decays matrices only (Loshchilov & Hutter 2019). SparseAdam's step is that of Adam in the
    rows that the gradient holds; the other rows, and their running means, stay as they are. Weights
    with sparse gradients are not decayed: to shrink every row would cost as much as a dense
    gradient, and to shrink the touched ones alone would decay frequent words more than rare ones.

    Args:
        model: the module to train.
        config: a `TrainingConfig`, of which `learning_rate`, `betas`, `eps` and `weight_decay` are
            used.
        device: where the weights are.

    Attributes:
        weights: those that are trained, by name.
        can_skip: whether `step` can be told on the device to change nothing.

    Raises:
        ValueError: a model without weights to train.
    """

    def __init__(self, model, config, device):
        self.weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not self.weights:
            raise ValueError("the model has no weights to train; set requires_grad on some")
        self.sparse = {name for name in sparse_weights(model) if name in self.weights}
        dense = [p for name, p in self.weights.items() if name not in self.sparse]
        groups = [
            {"params": [p for p in dense if p.dim() >= 2], "weight_decay": config.weight_decay},
            {"params": [p for p in dense if p.dim() < 2], "weight_decay": 0.0},
        ]
        options = {"lr": config.learning_rate, "betas": config.betas, "eps": config.eps}
        # One pass over all weights, which can also be told to change nothing.
        fused = device.type in ("cpu", "cuda")
        self.adamw = torch.optim.AdamW(groups, **options, fused=fused)
        self.all = [self.adamw]
        if self.sparse:
            rows = [self.weights[name] for name in sorted(self.sparse)]
            self.all.append(torch.optim.SparseAdam(rows, **options))
        self.can_skip = self.adamw.defaults["fused"] and not self.sparse
        self.zero_grad()  # of gradients that were left from before

    def clip(self, max_norm):
        """Scales all gradients together down to a norm; the norm before, a tensor of no axes.

        Raises:
            ValueError: a gradient that is sparse, or dense, where its module said otherwise.
        """
        for name, weight in self.weights.items():
            if weight.grad is not None and weight.grad.is_sparse != (name in self.sparse):
                raise ValueError(_unforeseen(name, weight.grad.is_sparse))
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

    def step(self, rate, skip):
        """One step at a learning rate; where it `can_skip`, a `skip` of 1 changes nothing."""
        if self.can_skip:
            self.adamw.found_inf = skip
        for optimizer in self.all:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()

    def zero_grad(self):
        """Forgets all gradients."""
        for optimizer in self.all:
            optimizer.zero_grad()

    def state_dict(self):
        """AdamW's, and under `sparse` SparseAdam's if there is one."""
        state = self.adamw.state_dict()
        return state | {SPARSE: self.all[1].state_dict()} if self.sparse else state

    def load_state_dict(self, state):
        """The way back from `state_dict`."""
        self.adamw.load_state_dict({name: state[name] for name in state if name != SPARSE})
        if self.sparse:
            self.all[1].load_state_dict(state[SPARSE])


def _unforeseen(name, sparse):
    if sparse:
        return (
            f"{name} has a sparse gradient, but not every module that holds it says sparse=True, "
            "so it was given to AdamW, which cannot apply it; say so, or make the gradient dense"
        )
    return (
        f"{name} has a dense gradient, but its module says sparse=True; it is used in another way "
        "as well. Make it with sparse=False (a LanguageModel with sparse_embeddings=False)"
    )
