"""What a method gives in each kind of pair, against every honest way of being alone.

Who writes half of the answers can be alone with half as many problems, or with all of them in
smaller groups. Which is better depends on the kind of pair, so a method is compared with the better
one: the larger of their two means over the base pairs. Both have noise, and the larger of two means
is too large by it, so this errs against the method.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Final

from potluck_experiments.cell_files import NodeResult
from potluck_experiments.results import Results
from potluck_experiments.suite import Measure, When
from potluck_experiments.verdicts import differences

DEFAULT: Final = "lws-typicality"
"""The setting of the package's own default."""
BEFORE: Final = "lws-likelihood"
"""That of its default before, with which pairs 0 to 7 ran as OLDER."""
OLDER: Final = "lws"
CONTROLS: Final = {
    "own-part": "own part only",
    "alone": "alone, all of it",
    "f-tis": "F-TIS",
    BEFORE: "LWS, c = 1",
}
"""Settings that the default is compared with, beside the better half."""
HALVES: Final[Mapping[int, tuple[str, str]]] = {
    2: ("half", "half-smaller"),
    4: ("quarter", "quarter-smaller"),
}
"""Settings in which one model alone writes as much as one of so many nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """The base pairs of a family on which a method and its controls are finished."""

    results: Results
    name: str
    method: str
    pairs: tuple[str, ...]
    halves: tuple[str, ...]  # Those that are finished on all these pairs

    @property
    def title(self) -> str:
        return self.results.suite.family(self.results.scale, self.name).title

    @property
    def count(self) -> str:
        """Number of pairs, and of their runs where some have not all their seeds."""
        runs = sum(len(self.results.runs[pair, self.method]) for pair in self.pairs)
        is_whole = runs == len(self.pairs) * self.results.suite.scales[self.results.scale].seeds
        return f"{len(self.pairs)}" + f" ({runs} runs)" * (not is_whole)

    @property
    def roles(self) -> list[str]:
        """Names of the models without their numbers, in the order of a pair."""
        return [
            role_of(model) for model in self.results.suite.models(self.results.scale, self.pairs[0])
        ]

    @property
    def told(self) -> list[str]:
        """Roles that are told of: all together, "", and of more than two each by itself, as a mean
        hides the one that loses."""
        return ["", *self.roles] if len(self.roles) > 2 else [""]

    def better(self, role: str = "") -> str:
        """Return the half that is better on these pairs; of equal ones the first."""
        return max(self.halves, key=lambda half: self.level(half, role) or 0.0)

    def level(self, setting: str, role: str = "") -> float | None:
        """Return the mean sampled reward of the second half of the rounds."""
        nodes = self.nodes(setting, role)
        late = [mean(node.sampled[len(node.sampled) // 2 :]) for node in nodes]
        return mean(late) if late else None

    def fewer(self, setting: str) -> str:
        """Return " (2)" where only two of more pairs have the setting."""
        number = sum(has_run(self.results, pair, setting) for pair in self.pairs)
        return f" ({number})" * (0 < number < len(self.pairs))

    def minus(
        self, than: str, measure: Measure = "sampled", when: When = "late", *, role: str = ""
    ) -> list[float]:
        """Return the method minus another setting, for each of the pairs on which that is
        finished: of the models of one role, or the mean over all."""
        pairs = [pair for pair in self.pairs if has_run(self.results, pair, than)]
        place = self.roles.index(role) if role else None
        return differences(self.results, pairs, (self.method, than), measure, when, place)

    def named(self, setting: str) -> str:
        """Return a setting of half the generation as it is called here: among four, a quarter."""
        return setting.replace("half", HALVES[len(self.roles)][0])

    def by(self, method: str) -> "Kind":
        """Return the same pairs with another method in the place of this one."""
        return replace(self, method=method)

    def mean_of(self, setting: str, field: str) -> float | None:
        """Return the mean of a field of NodeResult, or of its rounds, empty: 0, over the runs."""
        found = []
        for node in self.nodes(setting):
            value = getattr(node, field)
            its = (value or (0.0,)) if isinstance(value, tuple) else (value,)
            found += [mean(known)] if (known := [each for each in its if each is not None]) else []
        return mean(found) if found else None

    def nodes(
        self, setting: str, role: str = "", pairs: Sequence[str] = ()
    ) -> Iterator[NodeResult]:
        """Yield the models' results of all seeds, on the pairs on which the setting is finished."""
        for pair in pairs or self.pairs:
            if has_run(self.results, pair, setting):
                for run in self.results.runs[pair, setting].values():
                    yield from (of.node for name, of in run.items() if role in ("", role_of(name)))


def newest(results: Results) -> list[Kind]:
    """Return the kinds of pair that have the default, each on the pairs that have both halves."""
    found = []
    for name, pairs, halves in _families(results):
        settings = DEFAULT, *halves
        whole = [pair for pair in pairs if all(has_run(results, pair, its) for its in settings)]
        if whole:
            found.append(Kind(results, name, DEFAULT, tuple(whole), halves))
    return found


def older(results: Results) -> list[Kind]:
    """Return those of the default before, on pairs that never ran with the newer one."""
    found = []
    for name, pairs, halves in _families(results):
        known = [pair for pair in pairs if (pair, DEFAULT) not in results.runs]
        ran = [pair for pair in known if has_run(results, pair, OLDER)]
        whole = tuple(its for its in halves if all(has_run(results, p, its) for p in ran))
        if ran and whole:
            found.append(Kind(results, name, OLDER, tuple(ran), whole))
    return found


def has_run(results: Results, pair: str, setting: str) -> bool:
    """Tell if every model of the pair has a seed in the setting."""
    models, runs = results.suite.models(results.scale, pair), results.runs.get((pair, setting), {})
    return set(models) <= {model for run in runs.values() for model in run}


def role_of(model: str) -> str:
    """
    >>> role_of("columns-203"), role_of("large")
    ('columns', 'large')
    """
    name, _, index = model.rpartition("-")
    return name if name and index.isdecimal() else model


def _families(results: Results) -> Iterator[tuple[str, list[str], tuple[str, ...]]]:
    """Yield each family of a scale of base pairs, its pairs that have runs, and its halves."""
    families = results.suite.scales[results.scale].family if results.of_base_pairs else {}
    ran = {pair for pair, _ in results.runs}
    for name, family in families.items():
        sizes = {f"{name}.{pair}": len(models) for pair, models in family.pair.items()}
        usual = next(iter(sizes.values()))
        pairs = [pair for pair, size in sizes.items() if size == usual and pair in ran]
        if pairs and usual in HALVES:
            yield name, pairs, HALVES[usual]
