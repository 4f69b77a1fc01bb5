"""Made-up results of a scale of base pairs: the default, what came before it, and the controls."""

from itertools import product
from pathlib import Path
from random import Random

from msgspec.structs import replace

from made_up import node, result
from potluck_experiments.kinds import BEFORE, DEFAULT, OLDER
from potluck_experiments.results import NotationCurve, results_of
from potluck_experiments.suite import Family, ScaleFile, Setting, Suite

ALONE = ("alone", "half", "half-smaller", "quarter", "quarter-smaller")
TOGETHER = ("own-part", "f-tis", BEFORE, DEFAULT, OLDER)
SETTINGS = {name: Setting(title=name, alone=name in ALONE) for name in (*ALONE, *TOGETHER)}
ROLES = {
    "size": ("small", "large"),
    "near": ("columns", "terse"),
    "four": ("small", "large", "columns", "terse"),
}
TITLES = {"size": "two sizes", "near": "near notations", "four": "four nodes"}
GAIN = {
    "half": 0.0, "half-smaller": 0.03, "quarter": 0.01, "quarter-smaller": -0.02, "alone": 0.08,
    "own-part": 0.02, "f-tis": 0.04, BEFORE: -0.05, DEFAULT: 0.06, OLDER: -0.05,
}  # fmt: skip
"""What each setting has on half, before chance."""
ROUNDS = 20


def drawn_up(pairs=(200, 201, 202), *, seed=0, without=(), once=(), settings=None, gain=GAIN):
    """Results of two seeds; ``without`` leaves out (family, pair, setting),
    ``once`` has the first seed alone."""
    families = {name: _family(name, pairs) for name in ROLES}
    scales = {"drawn": ScaleFile(seeds=2, unit="base pair", family=families)}
    suite = Suite(Path("x/experiments"), SETTINGS, scales, ())
    settings = settings or [name for name in SETTINGS if name != OLDER]
    cells = {}
    for name, pair, setting in product(ROLES, pairs, settings):
        if (name, pair, setting) in without or _is_not_run(name, setting):
            continue
        for each in range(1 if (name, pair, setting) in once else 2):
            dice = Random(f"{seed} {name} {pair} {setting} {each}")
            models = [f"{role}-{pair}" for role in ROLES[name]]
            nodes = {model: _node(dice, model, setting, gain[setting]) for model in models}
            for run in [{m: n} for m, n in nodes.items()] if setting in ALONE else [nodes]:
                cell = result(setting, each, run, family=name, scale="drawn")
                cells[f"{name}.{'+'.join(run)}.{setting}.{each}"] = cell
    return results_of(suite, "drawn", cells)


def _family(name, pairs):
    pair = {str(at): tuple(f"{role}-{at}" for role in ROLES[name]) for at in pairs}
    model = {model: f"x.toml#{name}-{model}" for models in pair.values() for model in models}
    return Family(title=TITLES[name], model=model, pair=pair)


def _is_not_run(name, setting):
    if name == "four":
        return setting.startswith(("half", "alone"))
    return setting.startswith("quarter")


def _node(dice, model, setting, gain):
    """Rises to half and a little, by chance and by setting; what it writes as its role does."""
    top = 0.5 + gain + dice.uniform(-0.05, 0.05)
    sampled = [0.2 + (top - 0.2) * at / ROUNDS + dice.uniform(-0.03, 0.03) for at in range(ROUNDS)]
    ends = [0.1, 0.3, dice.uniform(0.4, 0.6)]
    made = node(ends, sampled=[round(value, 6) for value in sampled], out=dice.uniform(0.3, 0.9))
    changes = {"notations": _notations(dice, model, setting)}
    if setting in TOGETHER:
        changes["others_taken"] = tuple(round(dice.uniform(0.4, 0.9), 3) for _ in range(ROUNDS))
        changes["others_likelihood"] = 0.9
    if setting == DEFAULT:
        changes["others_silenced"] = (None, *(round(dice.random(), 3) for _ in range(ROUNDS - 1)))
    return replace(made, **changes)


def _notations(dice, model, setting):
    role = model.partition("-")[0]
    other = {"columns": "terse", "terse": "columns"}.get(role)
    if not other:
        return {"columns": NotationCurve((64,) * ROUNDS, (30,) * ROUNDS)}
    drift, curves = 0.2 if setting == BEFORE else -0.2, {role: ([], []), other: ([], [])}
    for at in range(ROUNDS):
        often = round(64 * (0.25 + drift * at / ROUNDS)) + dice.randint(-3, 3)
        for name, number, rate in (role, 60 - often, 0.3 + 0.5 * at / ROUNDS), (other, often, 0.3):
            number = max(0, number)
            curves[name][0].append(number)
            curves[name][1].append(round(number * (rate + dice.uniform(-0.1, 0.1))))
    return {name: NotationCurve(*map(tuple, its)) for name, its in curves.items()}
