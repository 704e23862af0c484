# %% 02.1 right: a random order of comparison, numbers drawn as doubles
def choose(eligible, rate, generator):
    lots = torch.rand(*eligible.shape, generator=generator, dtype=torch.float64)
    return torch.where(eligible, lots < rate, False)


# %% 02.1 right: torch.bernoulli over a tensor of rates that is zero where nothing is eligible
def choose(eligible, rate, generator):
    return torch.bernoulli(eligible.float() * rate, generator=generator).bool()


# %% 02.1 wrong: special tokens are chosen, too | a special position was chosen
def choose(eligible, rate, generator):
    return torch.rand(eligible.shape, generator=generator) < rate


# %% 02.1 wrong: exactly 15% of each row | flip a coin per position
def choose(eligible, rate, generator):
    order = torch.rand(eligible.shape, generator=generator).masked_fill(~eligible, 2).argsort(1)
    chosen = torch.zeros_like(eligible)
    number = round(rate * int(eligible[0].sum()))
    return chosen.scatter(1, order[:, :number], True) & eligible


# %% 02.1 wrong: one coin for a whole row | each position needs a coin of its own
def choose(eligible, rate, generator):
    return eligible & (torch.rand(len(eligible), 1, generator=generator) < rate)


# %% 02.1 wrong: the global generator is used | use the generator that is given
def choose(eligible, rate, generator):
    return eligible & (torch.rand(eligible.shape) < rate)


# %% 02.1 wrong: one row of coins for all rows | rows must not share their coins
def choose(eligible, rate, generator):
    return eligible & (torch.rand(1, eligible.shape[1], generator=generator) < rate)
