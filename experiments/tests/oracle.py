"""The statistics as plain loops. Shares no code with ``potluck_experiments``."""

import math

T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 9: 2.262,
         10: 2.228, 19: 2.093, 29: 2.045, 30: 2.042, 60: 2.000, 120: 1.980}  # fmt: skip
"""As the tables in the back of a textbook print it."""
T_95 = {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 7: 1.895}


def share_within(t, degrees, steps=2_000):
    """The area under Student's density from -t to t, strip by strip (Simpson's rule)."""
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2))
    scale /= math.sqrt(degrees * math.pi)
    area, width = 0.0, t / steps
    for i in range(steps):
        for at, weight in ((i, 1), (i + 0.5, 4), (i + 1, 1)):
            density = scale * (1 + (at * width) ** 2 / degrees) ** (-(degrees + 1) / 2)
            area += weight * density * width / 6
    return 2 * area


def interval(differences):
    """(mean, low, high)"""
    n, total = len(differences), 0.0
    for d in differences:
        total += d
    squares = 0.0
    for d in differences:
        squares += (d - total / n) ** 2
    half = T_975[n - 1] * math.sqrt(squares / (n - 1) / n)
    return total / n, total / n - half, total / n + half


def geometric(pairs):
    """(mean, low, high) of ratios."""
    logs = []
    for what, than in pairs:
        logs.append(math.log(what) - math.log(than))
    return tuple(math.e**x for x in interval(logs))


def verdict(low, high, lies, margin):
    """Of whole numbers: looks at every half between low and high."""
    belongs = {
        "below": lambda x: x < -margin,
        "above": lambda x: x > margin,
        "within": lambda x: -margin <= x <= margin,
        "not below": lambda x: not x < -margin,
    }[lies]
    points = [belongs(x / 2) for x in range(2 * low, 2 * high + 1)]
    if all(points):
        return "shown"
    return "inconclusive" if any(points) else "refuted"


# What a method gives in each kind of pair, and the notations. A cell is what its JSON says.


def nodes_of(cells, family, model, setting):
    """Of each seed, in their order."""
    found = by_seed(cells, family, model, setting)
    return [found[seed] for seed in sorted(found)]


def by_seed(cells, family, model, setting):
    found = {}
    for cell in cells:
        if cell["family"] == family and cell["setting"] == setting and model in cell["node"]:
            found[cell["seed"]] = cell["node"][model]
    return found


def nodes_of_pair(cells, family, models, setting):
    found = []
    for model in models:
        found += nodes_of(cells, family, model, setting)
    return found


def is_finished(cells, family, models, setting):
    """With one seed at least."""
    return all(nodes_of(cells, family, model, setting) for model in models)


def value(node, measure, when):
    rounds, sampled = len(node["sampled"]), node["sampled"]
    if measure == "sampled":
        part = {"early": sampled[: rounds // 2], "late": sampled[rounds // 2 :],
                "end": sampled[-max(3, -(-rounds // 10)) :]}[when]  # fmt: skip
        return sum(part) / len(part)
    if measure != "greedy":
        return node["pass_at_8" if measure == "pass@8" else "out_of_distribution"]
    if when == "end":
        return node["greedy"][-1]
    early = [g for at, g in zip(node["eval_rounds"], node["greedy"], strict=True)
             if 0 < at <= rounds / 2]  # fmt: skip
    return sum(early) / len(early)


def of_role(models, role):
    return [model for model in models if not role or model.rpartition("-")[0] == role]


def level(cells, family, pairs, setting, role=""):
    """Mean over the base pairs, lists of models, that have every seed of it."""
    every = []
    for models in pairs:
        for model in of_role(models, role):
            for node in nodes_of(cells, family, model, setting):
                every.append(value(node, "sampled", "late"))
    return sum(every) / len(every) if every else None


def better_half(cells, family, pairs, halves, role=""):
    best = halves[0]
    for half in halves:
        if level(cells, family, pairs, half, role) > level(cells, family, pairs, best, role):
            best = half
    return best


def differences(cells, family, pairs, setting, than, *, role="", measure="sampled"):
    """One for each base pair that has both: the mean over its models and the seeds of both. Sampled
    reward late, other measures at the end; out of distribution where the accuracy has room."""
    found, when = [], "late" if measure == "sampled" else "end"
    for models in pairs:
        of_pair = []
        for model in of_role(models, role):
            what, other = (by_seed(cells, family, model, name) for name in (setting, than))
            both = [seed for seed in what if seed in other]
            if not both:
                of_pair = None
                break
            level = sum(value(other[seed], measure, when) for seed in both) / len(both)
            if measure == "out-of-distribution" and not 0.1 <= level <= 0.8:
                continue
            changes = [
                value(what[seed], measure, when) - value(other[seed], measure, when)
                for seed in both
            ]
            of_pair.append(sum(changes) / len(changes))
        if of_pair:
            found.append(sum(of_pair) / len(of_pair))
    return found


def notation(cells, family, pairs, setting, roles, start, end):
    """(share of answers in the other notation, reward in its own, in the other), means over the
    base pairs of means over models and seeds; rewards of five answers at least."""
    over_pairs = [], [], []
    for models in pairs:
        of_pair = [], [], []
        for model in models:
            role = model.rpartition("-")[0]
            for node in nodes_of(cells, family, model, setting) if role in roles else ():
                own, own_right, other, other_right = 0, 0, 0, 0
                for name, (written, right) in node["notations"].items():
                    for at in range(start, end):
                        if name == role:
                            own, own_right = own + written[at], own_right + right[at]
                        else:
                            other, other_right = other + written[at], other_right + right[at]
                if own + other > 0:
                    of_pair[0].append(other / (own + other))
                if own >= 5:
                    of_pair[1].append(own_right / own)
                if other >= 5:
                    of_pair[2].append(other_right / other)
        for values, its in zip(over_pairs, of_pair, strict=True):
            if its:
                values.append(sum(its) / len(its))
    return tuple(sum(values) / len(values) if values else None for values in over_pairs)


def written_out(scale):
    """A scale's file with one entry for each index in the place of those with {index}."""
    for family in scale["family"].values():
        model, pair = {}, {}
        for index in map(str, scale.get("indices", [0])):
            for name, place in family["model"].items():
                model[name.replace("{index}", index)] = place.replace("{index}", index)
            for name, models in family["pair"].items():
                its = [each.replace("{index}", index) for each in models]
                pair[name.replace("{index}", index)] = its
        family["model"], family["pair"] = model, pair
    return scale
