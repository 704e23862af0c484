# %% 13.1 right: scipy's own interval, and the plan by halving
def t_interval(values, confidence=0.95):
    if len(values) < 2:
        raise ValueError("one run has no interval")
    values = np.asarray(values, float)
    low, high = stats.t.interval(
        confidence, len(values) - 1, loc=values.mean(), scale=stats.sem(values)
    )
    return values.mean().item(), float(low), float(high)


def runs_needed(spread, reach, confidence=0.95):
    def enough(n):
        return stats.t.ppf((1 + confidence) / 2, n - 1) * spread <= reach * math.sqrt(n)

    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


# %% 13.1 right: sums in plain Python, the lower quantile, the plan as a search over a count
import itertools


def t_interval(values, confidence=0.95):
    count = len(values)
    if count <= 1:
        raise ValueError(f"{count} values")
    mean = sum(values) / count
    squares = sum((value - mean) ** 2 for value in values)
    error = math.sqrt(squares / (count - 1) / count)
    low = mean + float(stats.t.ppf((1 - confidence) / 2, count - 1)) * error
    return mean, low, 2 * mean - low


def runs_needed(spread, reach, confidence=0.95):
    tail = (1 - confidence) / 2
    fits = (n for n in itertools.count(2) if stats.t.isf(tail, n - 1) * spread / n**0.5 <= reach)
    return next(fits)


# %% 13.1 wrong: the normal law's quantile | quantile of the normal law
def t_interval(values, confidence=0.95):
    if len(values) < 2:
        raise ValueError("one run has no interval")
    mean, error = np.mean(values), np.std(values, ddof=1) / len(values) ** 0.5
    reach = stats.norm.ppf((1 + confidence) / 2) * error
    return float(mean), float(mean - reach), float(mean + reach)


def runs_needed(spread, reach, confidence=0.95):
    return math.ceil((stats.norm.ppf((1 + confidence) / 2) * spread / reach) ** 2)


# %% 13.1 wrong: n degrees of freedom | two degrees of freedom
def t_interval(values, confidence=0.95):
    if len(values) < 2:
        raise ValueError("one run has no interval")
    mean, error = np.mean(values), np.std(values, ddof=1) / len(values) ** 0.5
    reach = stats.t.ppf((1 + confidence) / 2, len(values)) * error
    return float(mean), float(mean - reach), float(mean + reach)


# %% 13.1 wrong: the whole 5% on each side | only half as much
def t_interval(values, confidence=0.95):
    if len(values) < 2:
        raise ValueError("one run has no interval")
    mean, error = np.mean(values), np.std(values, ddof=1) / len(values) ** 0.5
    reach = stats.t.ppf(confidence, len(values) - 1) * error
    return float(mean), float(mean - reach), float(mean + reach)


# %% 13.1 wrong: the root of n is forgotten | divide by √n
def t_interval(values, confidence=0.95):
    if len(values) < 2:
        raise ValueError("one run has no interval")
    mean, spread = np.mean(values), np.std(values, ddof=1)
    reach = stats.t.ppf((1 + confidence) / 2, len(values) - 1) * spread
    return float(mean), float(mean - reach), float(mean + reach)


# %% 13.1 wrong: numpy's standard deviation as it comes | n − 1 in its denominator
def t_interval(values, confidence=0.95):
    if len(values) < 2:
        raise ValueError("one run has no interval")
    mean, error = np.mean(values), np.std(values) / len(values) ** 0.5
    reach = stats.t.ppf((1 + confidence) / 2, len(values) - 1) * error
    return float(mean), float(mean - reach), float(mean + reach)


# %% 13.1 wrong: one run gets an interval of NaN | one run has no interval
def t_interval(values, confidence=0.95):
    mean, error = np.mean(values), np.std(values, ddof=1) / len(values) ** 0.5
    reach = stats.t.ppf((1 + confidence) / 2, len(values) - 1) * error
    return float(mean), float(mean - reach), float(mean + reach)


# %% 13.1 wrong: 95% is written into the function | use what is given
def t_interval(values, confidence=0.95):
    n = len(values)
    if n < 2:
        raise ValueError("one run has no interval")
    mean, error = np.mean(values), np.std(values, ddof=1) / n**0.5
    reach = stats.t.ppf(0.975, n - 1) * error
    return float(mean), float(mean - reach), float(mean + reach)


def runs_needed(spread, reach, confidence=0.95):
    n = 2
    while stats.t.ppf(0.975, n - 1) * spread / n**0.5 > reach:
        n += 1
    return n


# %% 13.1 wrong: the plan takes the normal law's quantile | depends on the number of runs
def t_interval(values, confidence=0.95):
    n = len(values)
    if n < 2:
        raise ValueError("one run has no interval")
    mean, error = np.mean(values), np.std(values, ddof=1) / n**0.5
    reach = stats.t.ppf((1 + confidence) / 2, n - 1) * error
    return float(mean), float(mean - reach), float(mean + reach)


def runs_needed(spread, reach, confidence=0.95):
    return max(2, math.ceil((stats.norm.ppf((1 + confidence) / 2) * spread / reach) ** 2))


# %% 13.1 wrong: the plan returns the last number that is too small | is one off
def t_interval(values, confidence=0.95):
    n = len(values)
    if n < 2:
        raise ValueError("one run has no interval")
    mean, error = np.mean(values), np.std(values, ddof=1) / n**0.5
    reach = stats.t.ppf((1 + confidence) / 2, n - 1) * error
    return float(mean), float(mean - reach), float(mean + reach)


def runs_needed(spread, reach, confidence=0.95):
    n = 2
    while stats.t.ppf((1 + confidence) / 2, n) * spread / (n + 1) ** 0.5 > reach:
        n += 1
    return n


# %% 13.1 wrong: the plan takes n degrees of freedom | n − 1 degrees of freedom
def t_interval(values, confidence=0.95):
    n = len(values)
    if n < 2:
        raise ValueError("one run has no interval")
    mean, error = np.mean(values), np.std(values, ddof=1) / n**0.5
    reach = stats.t.ppf((1 + confidence) / 2, n - 1) * error
    return float(mean), float(mean - reach), float(mean + reach)


def runs_needed(spread, reach, confidence=0.95):
    n = 2
    while stats.t.ppf((1 + confidence) / 2, n) * spread / n**0.5 > reach:
        n += 1
    return n


# %% 13.2 right: sorted rows and Counter, arm by arm
from collections import Counter


def losses_of(runs, arm):
    mine = sorted(run for run in runs if run.arm == arm)
    if not mine:
        raise ValueError(f"no run of arm {arm!r}")
    seed, times = Counter(run.seed for run in mine).most_common(1)[0]
    if times > 1:
        raise ValueError(f"arm {arm!r} has {times} runs with seed {seed}")
    for run in mine:
        if math.isnan(run.loss) or math.isinf(run.loss):
            raise ValueError(f"arm {arm!r} blew up at seed {run.seed}")
    return {run.seed: run.loss for run in mine}


def differences(runs, arm, base):
    ours, theirs = losses_of(runs, arm), losses_of(runs, base)
    for name, has, other in ((arm, ours, theirs), (base, theirs, ours)):
        lacking = sorted(set(other) - set(has))
        if lacking:
            raise ValueError(f"arm {name!r} has no run with seed {lacking[0]}")
    return [ours[seed] - theirs[seed] for seed in ours]


# %% 13.2 right: one table by seed and arm, read off at the end
def differences(runs, arm, base):
    table = {}
    for name, seed, loss in runs:
        if name in (arm, base):
            table.setdefault(seed, {}).setdefault(name, []).append(loss)
    for name in (arm, base):
        if not any(name in cells for cells in table.values()):
            raise ValueError(f"{name}: no runs")
        for seed, cells in table.items():
            losses = cells.get(name, [])
            if len(losses) != 1 or not np.isfinite(losses[0]):
                raise ValueError(f"{name}, seed {seed}: {losses} is not one finite loss")
    return [table[seed][arm][0] - table[seed][base][0] for seed in sorted(table)]


# %% 13.2 wrong: paired in the order of the heap | runs of unlike seeds were paired
def differences(runs, arm, base):
    ours, theirs = ([run.loss for run in runs if run.arm == name] for name in (arm, base))
    return [a - b for a, b in zip(ours, theirs)]


# %% 13.2 wrong: the base less the arm | the sign is wrong
def differences(runs, arm, base):
    losses = {(run.arm, run.seed): run.loss for run in runs}
    seeds = sorted(run.seed for run in runs if run.arm == arm)
    return [losses[base, seed] - losses[arm, seed] for seed in seeds]


# %% 13.2 wrong: in the order in which the seeds came | out of order
def differences(runs, arm, base):
    ours = {run.seed: run.loss for run in runs if run.arm == arm}
    theirs = {run.seed: run.loss for run in runs if run.arm == base}
    return [loss - theirs[seed] for seed, loss in ours.items()]


# %% 13.2 wrong: a dictionary by seed | a list is needed
def differences(runs, arm, base):
    losses = {(run.arm, run.seed): run.loss for run in runs}
    seeds = sorted(run.seed for run in runs if run.arm == arm)
    return {seed: losses[arm, seed] - losses[base, seed] for seed in seeds}


# %% 13.2 wrong: only the seeds that both have | lacks seed 41
def differences(runs, arm, base):
    ours = {run.seed: run.loss for run in runs if run.arm == arm}
    theirs = {run.seed: run.loss for run in runs if run.arm == base}
    return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]


# %% 13.2 wrong: a missing run ends in a KeyError | `wide` lacks seed 41: a ValueError is asked
def differences(runs, arm, base):
    ours = {run.seed: run.loss for run in runs if run.arm == arm}
    theirs = {run.seed: run.loss for run in runs if run.arm == base}
    seeds = sorted({*ours, *theirs})
    return [ours[seed] - theirs[seed] for seed in seeds]


# %% 13.2 wrong: the later of two runs wins | has seed 41 twice
def differences(runs, arm, base):
    ours = {run.seed: run.loss for run in runs if run.arm == arm}
    theirs = {run.seed: run.loss for run in runs if run.arm == base}
    for seed in ours.keys() ^ theirs.keys():
        name = base if seed in ours else arm
        raise ValueError(f"{name} lacks seed {seed}")
    if not ours:
        raise ValueError(f"no run of {arm} or {base}")
    return [ours[seed] - theirs[seed] for seed in sorted(ours)]


# %% 13.2 wrong: the message names no seed | must name this arm and this seed
def differences(runs, arm, base):
    ours = sorted(run for run in runs if run.arm == arm)
    theirs = sorted(run for run in runs if run.arm == base)
    if [run.seed for run in ours] != [run.seed for run in theirs]:
        raise ValueError(f"the seeds of {arm} and {base} do not match")
    return [a.loss - b.loss for a, b in zip(ours, theirs)]


# %% 13.2 wrong: NaN goes through | the loss of `plain` at seed 7 is NaN
def differences(runs, arm, base):
    losses = {arm: {}, base: {}}
    for run in runs:
        if run.arm in losses:
            if run.seed in losses[run.arm]:
                raise ValueError(f"{run.arm}, seed {run.seed}: twice")
            losses[run.arm][run.seed] = run.loss
    for seed in losses[arm].keys() ^ losses[base].keys():
        raise ValueError(f"{base if seed in losses[arm] else arm} lacks seed {seed}")
    return [losses[arm][seed] - losses[base][seed] for seed in sorted(losses[arm])]


# %% 13.2 wrong: runs that blew up are left out, and so seem to be missing | infinity passes
def differences(runs, arm, base):
    losses = {arm: {}, base: {}}
    for run in runs:
        if run.arm in losses:
            if run.seed in losses[run.arm] or run.loss != run.loss:
                raise ValueError(f"{run.arm}, seed {run.seed}")
            losses[run.arm][run.seed] = run.loss
    for name in (arm, base):
        if not losses[name]:
            raise ValueError(f"{name} has no run")
    for seed in losses[arm].keys() ^ losses[base].keys():
        raise ValueError(f"{base if seed in losses[arm] else arm} lacks seed {seed}")
    return [losses[arm][seed] - losses[base][seed] for seed in sorted(losses[arm])]


# %% 13.2 wrong: the whole heap must be clean | nobody asked about it
def differences(runs, arm, base):
    table = {}
    for run in runs:
        if (run.arm, run.seed) in table or not math.isfinite(run.loss):
            raise ValueError(f"{run.arm}, seed {run.seed}: twice, or no finite loss")
        table[run.arm, run.seed] = run.loss
    for name in (arm, base):
        if name not in {run.arm for run in runs}:
            raise ValueError(f"{name} has no run")
    seeds = sorted({seed for name, seed in table if name in (arm, base)})
    for seed in seeds:
        for name in (arm, base):
            if (name, seed) not in table:
                raise ValueError(f"{name} lacks seed {seed}")
    return [table[arm, seed] - table[base, seed] for seed in seeds]


# %% 13.2 wrong: a misspelt arm gives an empty list or the wrong name | that names it
def differences(runs, arm, base):
    losses = {arm: {}, base: {}}
    for run in runs:
        if run.arm in losses:
            if run.seed in losses[run.arm] or not math.isfinite(run.loss):
                raise ValueError(f"{run.arm}, seed {run.seed}")
            losses[run.arm][run.seed] = run.loss
    for seed in losses[arm]:
        if seed not in losses[base]:
            raise ValueError(f"{base} lacks seed {seed}")
    for seed in losses[base]:
        if losses[arm] and seed not in losses[arm]:
            raise ValueError(f"{arm} lacks seed {seed}")
    return [losses[arm][seed] - losses[base][seed] for seed in sorted(losses[arm])]


# %% 13.2 wrong: as many seeds are enough | not the same three
def differences(runs, arm, base):
    losses = {arm: {}, base: {}}
    for run in runs:
        if run.arm in losses:
            if run.seed in losses[run.arm] or not math.isfinite(run.loss):
                raise ValueError(f"{run.arm}, seed {run.seed}")
            losses[run.arm][run.seed] = run.loss
    if len(losses[arm]) != len(losses[base]):
        short, long = sorted((arm, base), key=lambda name: len(losses[name]))
        raise ValueError(f"{short} lacks seed {min(losses[long].keys() - losses[short].keys())}")
    pairs = zip(sorted(losses[arm].items()), sorted(losses[base].items()))
    return [a - b for (_, a), (_, b) in pairs]


# %% 13.3 right: block by block, the last one apart
def step_cost(config, lengths, rate):
    H, F = config.hidden_size, config.intermediate_size
    T = max(lengths)
    hidden = rate * sum(length - 2 for length in lengths)
    total = Fraction(0)
    for block in range(config.num_layers):
        places = T * len(lengths)
        total += places * (3 * H**2 + 2 * T * H)
        total += (hidden if block == config.num_layers - 1 else places) * H * (H + 2 * F)
    return total + hidden * H * (H + config.vocab_size)


def equal_steps(config, lengths, rates, base, steps):
    budget = step_cost(config, lengths, base) * steps
    return {rate: math.floor(budget / step_cost(config, lengths, rate)) for rate in rates}


# %% 13.3 right: a constant and a slope in the rate
def line(config, lengths):
    H, F, L, V = (
        getattr(config, f"{name}_size" if name != "num_layers" else name)
        for name in ("hidden", "intermediate", "num_layers", "vocab")
    )
    T, B = max(lengths), len(lengths)
    constant = B * T * (L * (4 * H * H + 2 * H * F + 2 * T * H) - H * H - 2 * H * F)
    slope = (sum(lengths) - 2 * B) * H * (2 * H + 2 * F + V)
    return constant, slope


def step_cost(config, lengths, rate):
    constant, slope = line(config, lengths)
    return constant + slope * rate


def equal_steps(config, lengths, rates, base, steps):
    constant, slope = line(config, lengths)
    plan = {}
    for rate in rates:
        quotient = Fraction(constant + slope * base) / (constant + slope * rate)
        plan[rate] = int(quotient * steps)
    return plan


# %% 13.3 wrong: padding costs nothing | padding is left out
def step_cost(config, lengths, rate):
    H, F, L, V = config.hidden_size, config.intermediate_size, config.num_layers, config.vocab_size
    T, places, words = max(lengths), sum(lengths), sum(lengths) - 2 * len(lengths)
    rest = H * H + 2 * H * F
    everywhere = L * (3 * H * H + 2 * T * H) + (L - 1) * rest
    return places * everywhere + rate * words * (rest + H * H + H * V)


# %% 13.3 wrong: special tokens and padding are hidden, too | only 4 words are
def step_cost(config, lengths, rate):
    H, F, L, V = config.hidden_size, config.intermediate_size, config.num_layers, config.vocab_size
    T, places = max(lengths), max(lengths) * len(lengths)
    rest = H * H + 2 * H * F
    everywhere = L * (3 * H * H + 2 * T * H) + (L - 1) * rest
    return places * everywhere + rate * places * (rest + H * H + H * V)


# %% 13.3 wrong: special tokens are hidden, too | only 4 of the 8 ids are words
def step_cost(config, lengths, rate):
    H, F, L, V = config.hidden_size, config.intermediate_size, config.num_layers, config.vocab_size
    T, places = max(lengths), max(lengths) * len(lengths)
    rest = H * H + 2 * H * F
    everywhere = L * (3 * H * H + 2 * T * H) + (L - 1) * rest
    return places * everywhere + rate * sum(lengths) * (rest + H * H + H * V)


# %% 13.3 wrong: every block does all of its work everywhere | belong to hidden words
def step_cost(config, lengths, rate):
    H, F, L, V = config.hidden_size, config.intermediate_size, config.num_layers, config.vocab_size
    T, places, words = max(lengths), max(lengths) * len(lengths), sum(lengths) - 2 * len(lengths)
    everywhere = L * (4 * H * H + 2 * T * H + 2 * H * F)
    return places * everywhere + rate * words * (H * H + H * V)


# %% 13.3 wrong: the head scores every place | counted at every place
def step_cost(config, lengths, rate):
    H, F, L, V = config.hidden_size, config.intermediate_size, config.num_layers, config.vocab_size
    T, places = max(lengths), max(lengths) * len(lengths)
    rest = H * H + 2 * H * F
    everywhere = L * (3 * H * H + 2 * T * H) + L * rest
    return places * (everywhere + H * H + H * V)


# %% 13.3 wrong: a multiply and an add count as two | a multiply-add is one
def step_cost(config, lengths, rate):
    H, F, L, V = config.hidden_size, config.intermediate_size, config.num_layers, config.vocab_size
    T, places, words = max(lengths), max(lengths) * len(lengths), sum(lengths) - 2 * len(lengths)
    rest = H * H + 2 * H * F
    everywhere = L * (3 * H * H + 2 * T * H) + (L - 1) * rest
    return 2 * (places * everywhere + rate * words * (rest + H * H + H * V))


# %% 13.3 wrong: attention is counted once | attention takes 2TH
def step_cost(config, lengths, rate):
    H, F, L, V = config.hidden_size, config.intermediate_size, config.num_layers, config.vocab_size
    T, places, words = max(lengths), max(lengths) * len(lengths), sum(lengths) - 2 * len(lengths)
    rest = H * H + 2 * H * F
    everywhere = L * (3 * H * H + T * H) + (L - 1) * rest
    return places * everywhere + rate * words * (rest + H * H + H * V)


# %% 13.3 wrong: floats | a float is not exact
def step_cost(config, lengths, rate):
    H, F, L, V = config.hidden_size, config.intermediate_size, config.num_layers, config.vocab_size
    T, places, words = max(lengths), max(lengths) * len(lengths), sum(lengths) - 2 * len(lengths)
    rest = H * H + 2 * H * F
    everywhere = L * (3 * H * H + 2 * T * H) + (L - 1) * rest
    return float(places * everywhere + rate * words * (rest + H * H + H * V))


# %% 13.3 wrong: steps are rounded to the nearest | costs more than the budget
def step_cost(config, lengths, rate):
    H, F, L, V = config.hidden_size, config.intermediate_size, config.num_layers, config.vocab_size
    T, places, words = max(lengths), max(lengths) * len(lengths), sum(lengths) - 2 * len(lengths)
    rest = H * H + 2 * H * F
    everywhere = L * (3 * H * H + 2 * T * H) + (L - 1) * rest
    return places * everywhere + rate * words * (rest + H * H + H * V)


def equal_steps(config, lengths, rates, base, steps):
    budget = steps * step_cost(config, lengths, base)
    return {rate: math.ceil(budget / step_cost(config, lengths, rate)) for rate in rates}


# %% 13.3 wrong: the quotient stands on its head | a lower rate costs less a step
def step_cost(config, lengths, rate):
    H, F, L, V = config.hidden_size, config.intermediate_size, config.num_layers, config.vocab_size
    T, places, words = max(lengths), max(lengths) * len(lengths), sum(lengths) - 2 * len(lengths)
    rest = H * H + 2 * H * F
    everywhere = L * (3 * H * H + 2 * T * H) + (L - 1) * rest
    return places * everywhere + rate * words * (rest + H * H + H * V)


def equal_steps(config, lengths, rates, base, steps):
    one = step_cost(config, lengths, base)
    return {rate: int(steps * step_cost(config, lengths, rate) // one) for rate in rates}


# %% 13.3 wrong: the base is always 15% | use the cost of a step at `base`
def step_cost(config, lengths, rate):
    H, F, L, V = config.hidden_size, config.intermediate_size, config.num_layers, config.vocab_size
    T, places, words = max(lengths), max(lengths) * len(lengths), sum(lengths) - 2 * len(lengths)
    rest = H * H + 2 * H * F
    everywhere = L * (3 * H * H + 2 * T * H) + (L - 1) * rest
    return places * everywhere + rate * words * (rest + H * H + H * V)


def equal_steps(config, lengths, rates, base, steps):
    budget = steps * step_cost(config, lengths, Fraction(15, 100))
    return {rate: int(budget // step_cost(config, lengths, rate)) for rate in rates}


# %% 13.4 right: numpy's generator from the pair, coins before rates
def falling_mean(step, first, last, steps):
    if step >= steps - 1:
        return last
    return ((steps - 1 - step) * first + step * last) / (steps - 1)


def hide(input_ids, blocked, mean, seed, step):
    random_numbers = np.random.default_rng([seed, step])
    coins = torch.from_numpy(random_numbers.random(input_ids.shape))
    low, high = (0, 2 * mean) if mean <= 0.5 else (2 * mean - 1, 1)
    rates = torch.from_numpy(random_numbers.uniform(low, high, (len(input_ids), 1)))
    chosen = torch.where(blocked, False, coins < rates)
    corrupted, labels = input_ids.clone(), torch.full_like(input_ids, -100)
    labels[chosen] = input_ids[chosen]
    corrupted[chosen] = MASK_ID
    return corrupted, labels


# %% 13.4 right: torch.bernoulli over the rates, a generator from a hash of the pair
def falling_mean(step, first, last, steps):
    return float(np.interp(step, [0, steps - 1], [first, last]))


def hide(input_ids, blocked, mean, seed, step):
    draw = torch.Generator().manual_seed(hash((seed, step)))
    width = 2 * min(mean, 1 - mean)
    rates = torch.rand(len(input_ids), generator=draw) * width + mean - width / 2
    chances = rates[:, None].clamp(0, 1).expand(input_ids.shape).masked_fill(blocked, 0)
    chosen = torch.bernoulli(chances, generator=draw).bool()
    labels = torch.where(chosen, input_ids, -100)
    return torch.where(chosen, MASK_ID, input_ids), labels


# %% 13.4 wrong: the line ends one step late | at the last of 5 steps it is `last`
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / steps, 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed * 1_000_000 + step)
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rates) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: the mean goes on falling | after the last step the mean stays
def falling_mean(step, first, last, steps):
    return first + (last - first) * step / (steps - 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed * 1_000_000 + step)
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rates) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: it falls by a factor, not on a line | on a straight line
def falling_mean(step, first, last, steps):
    return first * (last / first) ** min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed * 1_000_000 + step)
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rates) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: one rate for the whole batch | draw one for each row
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed * 1_000_000 + step)
    half = min(mean, 1 - mean)
    rate = mean + half * (2 * torch.rand(1, generator=generator) - 1)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rate) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: one coin for a row | a coin for each position
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed * 1_000_000 + step)
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    chosen = (torch.rand(len(input_ids), 1, generator=generator) < rates) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: rates above 1 are cut off | cutting them off
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed * 1_000_000 + step)
    rates = (2 * mean * torch.rand(len(input_ids), 1, generator=generator)).clamp(max=1)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rates) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: the range is 0.15 to either side, whatever the mean | as wide as it can be
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed * 1_000_000 + step)
    rates = mean + 0.15 * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rates) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: special tokens are chosen, too | a special token was chosen
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed * 1_000_000 + step)
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    chosen = torch.rand(input_ids.shape, generator=generator) < rates
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: labels from the corrupted tensor | labels hold [MASK]
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed * 1_000_000 + step)
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rates) & ~blocked
    corrupted = input_ids.masked_fill(chosen, MASK_ID)
    return corrupted, corrupted.masked_fill(~chosen, -100)


# %% 13.4 wrong: labels at every position | where nothing is asked
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed * 1_000_000 + step)
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rates) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.clone()


# %% 13.4 wrong: the batch is changed in place | tensor that came in was changed
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed * 1_000_000 + step)
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rates) & ~blocked
    labels = input_ids.masked_fill(~chosen, -100)
    input_ids[chosen] = MASK_ID
    return input_ids, labels


# %% 13.4 wrong: a rounded number of each row | flip coins, and do not round
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed * 1_000_000 + step)
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    order = torch.rand(input_ids.shape, generator=generator).masked_fill(blocked, 2).argsort(1)
    number = (rates * (~blocked).sum(1, keepdim=True)).round()
    chosen = (order.argsort(1) < number) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: seed and step are added | share a draw
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed + step)
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rates) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: seeds are a thousand steps apart | share a draw
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(1000 * seed + step)
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rates) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: the step does not count | `step` must count
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(seed)
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rates) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: digits of seed and step side by side | share a draw
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    generator = torch.Generator().manual_seed(int(f"{seed}{step}"))
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1, generator=generator) - 1)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rates) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: the global generator is seeded | torch's global generator
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    torch.manual_seed(seed * 1_000_000 + step)
    half = min(mean, 1 - mean)
    rates = mean + half * (2 * torch.rand(len(input_ids), 1) - 1)
    chosen = (torch.rand(input_ids.shape) < rates) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.4 wrong: a generator that nobody seeded | the same seed and step gave two draws
def falling_mean(step, first, last, steps):
    return first + (last - first) * min(step / (steps - 1), 1)


def hide(input_ids, blocked, mean, seed, step):
    draw = np.random.default_rng()
    half = min(mean, 1 - mean)
    rates = torch.from_numpy(draw.uniform(mean - half, mean + half, (len(input_ids), 1)))
    chosen = (torch.from_numpy(draw.random(input_ids.shape)) < rates) & ~blocked
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 13.5 right: adjusted p-values, as statistics packages print them
def holm(p_values, level):
    claimed, largest = set(), 0
    for rank, (p, name) in enumerate(sorted((p, name) for name, p in p_values.items())):
        largest = max(largest, p * (len(p_values) - rank))
        if largest <= level:
            claimed.add(name)
    return claimed


def referee(runs, base, findings, level=0.05):
    p_values, signs = {}, {}
    for arm in sorted({run.arm for run in runs if run.arm != base}):
        pairs = differences(runs, arm, base)
        test = stats.ttest_1samp(pairs, popmean=0.0)
        p_values[arm], signs[arm] = float(test.pvalue), sum(pairs)
    claimed = holm(p_values, level)
    verdicts = {}
    for arm, said in findings.items():
        if arm not in claimed:
            verdicts[arm] = "open"
        elif (signs[arm] > 0) == (said == "worse"):
            verdicts[arm] = "stands"
        else:
            verdicts[arm] = "wrong"
    return verdicts


# %% 13.5 right: one name after another taken out, the p-value from Student's t by hand
def holm(p_values, level):
    left, claimed = dict(p_values), set()
    while left:
        name = min(left, key=left.get)
        if left.pop(name) * (len(left) + 1) > level:
            return claimed
        claimed.add(name)
    return claimed


def p_value(pairs):
    error = np.std(pairs, ddof=1) / len(pairs) ** 0.5
    return 2 * stats.t.sf(abs(np.mean(pairs)) / error, len(pairs) - 1)


def referee(runs, base, findings, level=0.05):
    arms = dict.fromkeys(run.arm for run in runs)
    del arms[base]
    pairs = {arm: differences(runs, arm, base) for arm in arms}
    claimed = holm({arm: p_value(values) for arm, values in pairs.items()}, level)
    words = {arm: "worse" if np.mean(values) > 0 else "better" for arm, values in pairs.items()}
    return {
        arm: "open" if arm not in claimed else "stands" if words[arm] == said else "wrong"
        for arm, said in findings.items()
    }


# %% 13.5 wrong: each is judged by itself at 5% | smallest p is compared with 0.05 / 4
def holm(p_values, level):
    return {name for name, p in p_values.items() if p <= level}


# %% 13.5 wrong: Bonferroni: all are compared with level / m | for each next one m is less
def holm(p_values, level):
    return {name for name, p in p_values.items() if p <= level / len(p_values)}


# %% 13.5 wrong: a list of names | a set of names is needed
def holm(p_values, level):
    claimed = []
    for name in sorted(p_values, key=p_values.get):
        if p_values[name] > level / (len(p_values) - len(claimed)):
            break
        claimed.append(name)
    return claimed


# %% 13.5 wrong: goes on after one that was too large | stop there
def holm(p_values, level):
    ranked = sorted(p_values, key=p_values.get)
    m = len(ranked)
    return {name for rank, name in enumerate(ranked) if p_values[name] <= level / (m - rank)}


# %% 13.5 wrong: from the largest p-value up | judged from the largest
def holm(p_values, level):
    ranked = sorted(p_values, key=p_values.get)
    fits = [k for k, name in enumerate(ranked) if p_values[name] <= level * (k + 1) / len(ranked)]
    return set(ranked[: fits[-1] + 1]) if fits else set()


# %% 13.5 wrong: in the order of the table | are the p-values sorted
def holm(p_values, level):
    claimed = set()
    for number, (name, p) in enumerate(p_values.items()):
        if p > level / (len(p_values) - number):
            break
        claimed.add(name)
    return claimed


# %% 13.5 wrong: only what was reported is corrected for | five arms were measured
def holm(p_values, level):
    claimed = set()
    for name in sorted(p_values, key=p_values.get):
        if p_values[name] > level / (len(p_values) - len(claimed)):
            break
        claimed.add(name)
    return claimed


def referee(runs, base, findings, level=0.05):
    pairs = {arm: differences(runs, arm, base) for arm in findings}
    claimed = holm({arm: stats.ttest_1samp(pairs[arm], 0).pvalue for arm in pairs}, level)
    verdicts = {}
    for arm, said in findings.items():
        found = "better" if np.mean(pairs[arm]) < 0 else "worse"
        verdicts[arm] = ("stands" if found == said else "wrong") if arm in claimed else "open"
    return verdicts


# %% 13.5 wrong: a higher loss counts as better | a higher loss than the base: that is worse
def holm(p_values, level):
    claimed = set()
    for name in sorted(p_values, key=p_values.get):
        if p_values[name] > level / (len(p_values) - len(claimed)):
            break
        claimed.add(name)
    return claimed


def referee(runs, base, findings, level=0.05):
    pairs = {arm: differences(runs, arm, base) for arm in {run.arm for run in runs} - {base}}
    claimed = holm({arm: stats.ttest_1samp(pairs[arm], 0).pvalue for arm in pairs}, level)
    verdicts = {}
    for arm, said in findings.items():
        found = "better" if np.mean(pairs[arm]) > 0 else "worse"
        verdicts[arm] = ("stands" if found == said else "wrong") if arm in claimed else "open"
    return verdicts


# %% 13.5 wrong: the sign of a finding is not looked at | the finding says worse: it is wrong
def holm(p_values, level):
    claimed = set()
    for name in sorted(p_values, key=p_values.get):
        if p_values[name] > level / (len(p_values) - len(claimed)):
            break
        claimed.add(name)
    return claimed


def referee(runs, base, findings, level=0.05):
    pairs = {arm: differences(runs, arm, base) for arm in {run.arm for run in runs} - {base}}
    claimed = holm({arm: stats.ttest_1samp(pairs[arm], 0).pvalue for arm in pairs}, level)
    return {arm: "stands" if arm in claimed else "open" for arm in findings}


# %% 13.5 wrong: what is not claimed with its sign is called wrong | is open
def holm(p_values, level):
    claimed = set()
    for name in sorted(p_values, key=p_values.get):
        if p_values[name] > level / (len(p_values) - len(claimed)):
            break
        claimed.add(name)
    return claimed


def referee(runs, base, findings, level=0.05):
    pairs = {arm: differences(runs, arm, base) for arm in {run.arm for run in runs} - {base}}
    claimed = holm({arm: stats.ttest_1samp(pairs[arm], 0).pvalue for arm in pairs}, level)
    verdicts = {}
    for arm, said in findings.items():
        found = "better" if np.mean(pairs[arm]) < 0 else "worse"
        verdicts[arm] = "stands" if arm in claimed and found == said else "wrong"
    return verdicts


# %% 13.5 wrong: a test of two samples, which forgets the pairs | the finding stands
def holm(p_values, level):
    claimed = set()
    for name in sorted(p_values, key=p_values.get):
        if p_values[name] > level / (len(p_values) - len(claimed)):
            break
        claimed.add(name)
    return claimed


def referee(runs, base, findings, level=0.05):
    losses = {}
    for run in runs:
        losses.setdefault(run.arm, []).append(run.loss)
    others = losses.pop(base)
    claimed = holm({arm: stats.ttest_ind(losses[arm], others).pvalue for arm in losses}, level)
    verdicts = {}
    for arm, said in findings.items():
        found = "better" if np.mean(losses[arm]) < np.mean(others) else "worse"
        verdicts[arm] = ("stands" if found == said else "wrong") if arm in claimed else "open"
    return verdicts


# %% 13.5 wrong: the name of the base is written in | may have any name
def holm(p_values, level):
    claimed = set()
    for name in sorted(p_values, key=p_values.get):
        if p_values[name] > level / (len(p_values) - len(claimed)):
            break
        claimed.add(name)
    return claimed


def referee(runs, base, findings, level=0.05):
    pairs = {arm: differences(runs, arm, "base") for arm in {run.arm for run in runs} - {"base"}}
    claimed = holm({arm: stats.ttest_1samp(pairs[arm], 0).pvalue for arm in pairs}, level)
    verdicts = {}
    for arm, said in findings.items():
        found = "better" if np.mean(pairs[arm]) < 0 else "worse"
        verdicts[arm] = ("stands" if found == said else "wrong") if arm in claimed else "open"
    return verdicts
