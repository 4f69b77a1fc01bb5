"""The formulas of arXiv:2605.22537 as plain loops, one for each sum sign: the oracle.

Slow and literal on purpose: it is what the fast code is checked against, so it
must be checkable against the paper by eye. It shares no code with ``potluck``.

Each objective is what is maximised. Log-probabilities are one list per completion:
``logp`` now, ``start`` when the round began, ``gen`` of the author.

Everything is plain arithmetic, ``min`` and ``max``, so the numbers of ``logp`` may be
floats or tensors of no dimension. Of tensors the objective is one too, and its
``backward()`` is the paper's gradient. Whatever is constant in the paper stays a float.
Where the clip or the filter decides, a number drops out of the sums; add 0 times every
input before ``backward()`` where its gradient is wanted as a 0 and not as a None.
"""

from math import e


def nois_objective(logp, start, gen, advantage, *, epsilon):
    """Section 2, every completion taken for one's own."""
    total = 0.0
    for new, old, a in zip(logp, start, advantage, strict=True):
        completion = 0.0
        for lp, ls in zip(new, old, strict=True):
            completion += surrogate(e ** (lp - ls), a, epsilon)
        total += completion / len(new)
    return total / len(logp)


def vis_objective(logp, start, gen, advantage, *, epsilon):
    """Section 2's objective with the author's policy below the fraction bar."""
    total = 0.0
    for new, author, a in zip(logp, gen, advantage, strict=True):
        completion = 0.0
        for lp, lg in zip(new, author, strict=True):
            completion += surrogate(e ** (lp - lg), a, epsilon)
        total += completion / len(new)
    return total / len(logp)


def tis_objective(logp, start, gen, advantage, *, epsilon, C=2):
    """Section 3.1."""
    total = 0.0
    for new, old, author, a in zip(logp, start, gen, advantage, strict=True):
        completion = 0.0
        for lp, ls, lg in zip(new, old, author, strict=True):
            completion += min(e ** (ls - lg), C) * surrogate(e ** (lp - ls), a, epsilon)
        total += completion / len(new)
    return total / len(logp)


def surrogate(r, a, epsilon):
    return min(r * a, max(1 - epsilon, min(r, 1 + epsilon)) * a)


def advantages(rewards, *, scale="std"):
    """Section 2. Of equal rewards, 0/0 there, nothing is to be learned."""
    if max(rewards) == min(rewards):
        return [0.0 for _ in rewards]
    mean = sum(rewards) / len(rewards)
    std = (sum((r - mean) ** 2 for r in rewards) / len(rewards)) ** 0.5
    return [(r - mean) / {"std": std, "none": 1}[scale] for r in rewards]


def divergence(start, gen, *, k, reduce):
    """Section 3.2 names no estimator; these are the three in use (k3 is the authors')."""
    terms = []
    for ls, lg in zip(start, gen, strict=True):
        d = lg - ls
        terms.append({"k1": d, "k2": d * d / 2, "k3": e**d - d - 1}[k])
    return {"mean": sum(terms) / len(terms), "sum": sum(terms), "max": max(terms)}[reduce]


def filtered(advantage, kl, *, g):
    """Section 3.3."""
    return [a if a > 0 or d < g else 0.0 for a, d in zip(advantage, kl, strict=True)]


def from_others(advantage, start, own, *, others, weight, c=1, lengths=None, entropy=None):
    """Ours, not the paper's: what completions of others are worth, by ln p of each of their tokens
    under the learner (``start``); ``own`` says which are its own. ``lengths``: their numbers of
    tokens, or in another unit. ``entropy``: that of the learner before each token, which the
    weight by typicality reads."""
    counts_entropy = {"likelihood": 0, "typicality": 1}[weight]
    worth = []
    lengths = lengths or [len(logp) for logp in start]
    entropy = entropy or [[0.0] * len(logp) for logp in start]
    for a, logp, H, mine, length in zip(advantage, start, entropy, own, lengths, strict=True):
        if mine or others == "all":
            worth.append(a)
        elif others == "none" or a <= 0:
            worth.append(0.0)
        elif others == "successes":
            worth.append(a)
        else:
            product = 1.0
            for x, h in zip(logp, H, strict=True):
                product *= e ** (x + counts_entropy * h)
            worth.append(a * min(1.0, product ** (1 / length)) ** c)
    return worth


def effective_sample_size(start, gen):
    """(sum w)^2 / (n sum w^2) over all n tokens of some completions; the paper has none."""
    weights = []
    for old, author in zip(start, gen, strict=True):
        for ls, lg in zip(old, author, strict=True):
            weights.append(e ** (ls - lg))
    return sum(weights) ** 2 / (len(weights) * sum(w**2 for w in weights))


def round_objective(
    rewards_by_group,
    logp,
    start,
    gen,
    *,
    importance,
    filter,
    C,
    g,
    estimator,
    reduce,
    epsilon,
    scale,
):
    """Section 3 from end to end: what one update maximises, from rewards and log-probabilities.

    ``rewards_by_group`` holds the rewards of each group; ``logp``, ``start`` and ``gen`` the
    completions of all groups, one group after the other. ``filter`` is the "F-".
    """
    advantage = []
    for rewards in rewards_by_group:
        advantage += advantages(rewards, scale=scale)
    if filter:
        kl = []
        for old, author in zip(start, gen, strict=True):
            kl.append(divergence(old, author, k=estimator, reduce=reduce))
        advantage = filtered(advantage, kl, g=g)
    if importance == "none":
        return nois_objective(logp, start, gen, advantage, epsilon=epsilon)
    if importance == "vanilla":
        return vis_objective(logp, start, gen, advantage, epsilon=epsilon)
    assert importance == "truncated"
    return tis_objective(logp, start, gen, advantage, epsilon=epsilon, C=C)


def normalised(per_token, *, loss_type, longest):
    """Sum per-token parts, a list for each completion, as TRL's ``loss_type`` does; ours and TRL's,
    not the paper's. ``longest`` is the limit of a completion."""
    total, tokens = 0.0, 0
    for completion in per_token:
        part = 0.0
        for x in completion:
            part += x
        tokens += len(completion)
        total += part / len(completion) if loss_type == "grpo" else part
    if loss_type == "grpo":
        return total / len(per_token)
    if loss_type == "dr_grpo":
        return total / (len(per_token) * longest)
    assert loss_type in ("bnpo", "dapo")
    return total / tokens


def surrogates(logp, start, gen, advantage, *, importance, low, high, C=2):
    """The parts of the three objectives above, with a clip of two sides."""
    parts = []
    for new, old, author, a in zip(logp, start, gen, advantage, strict=True):
        completion = []
        for lp, ls, lg in zip(new, old, author, strict=True):
            r = e ** (lp - (lg if importance == "vanilla" else ls))
            w = min(e ** (ls - lg), C) if importance == "truncated" else 1
            completion.append(w * min(r * a, max(1 - low, min(r, 1 + high)) * a))
        parts.append(completion)
    return parts


def distances(logp, reference):
    """k3 of each token, as TRL's ``per_token_kl``."""
    found = []
    for new, ref in zip(logp, reference, strict=True):
        found.append([e ** (lr - lp) - (lr - lp) - 1 for lp, lr in zip(new, ref, strict=True)])
    return found
