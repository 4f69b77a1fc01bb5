"""The results as pages and pictures, from nothing but the finished cells.

Pages are docs/results.md and experiments/NAME/RESULTS.md, pictures docs/results/*.png. They are
the same to the last letter on every machine, at any time, whatever the code is meanwhile.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from potluck_experiments import gains, plots
from potluck_experiments.costs import LevelReached, PairCost, cost_of
from potluck_experiments.results import CellResult, Results, read_results, write_atomically
from potluck_experiments.statistics import POWER, TO_TELL, MeanInterval, interval_of
from potluck_experiments.suite import SCALES, Claim, Experiment, ExperimentError, Suite
from potluck_experiments.verdicts import VERDICTS, ClaimTest, all_of, try_claims, verdict_of_claim

MADE = "<!-- Written by `potluck reproduce --render` from the finished cells. Do not edit. -->"
PHRASES = {"pays": "pays for {}", "no difference": "makes no difference for {}",
           "costs": "costs {}", "too wide": "cannot be told for {}"}  # fmt: skip


def render(suite: Suite) -> list[Path]:
    """Write all pages and pictures, and return their paths. Somebody's own files are refused."""
    scales = [read_results(suite, scale) for scale in SCALES]
    texts = pages(suite, scales)
    for path in texts:
        if path.exists() and not path.read_bytes().startswith(MADE.encode()):
            raise ExperimentError(
                f"{path} was not written by potluck reproduce: it does not begin with {MADE!r}; "
                f"move it away to have the results there"
            )
    for path, text in texts.items():
        write_atomically(path, text.encode())
    written = list(texts)
    for results in scales:
        for name, figure in plots.draw_all(results):
            written.append(suite.folder.parent / "docs" / "results" / name)
            write_atomically(written[-1], plots.png(figure))
    return written


def pages(suite: Suite, scales: Sequence[Results]) -> dict[Path, str]:
    """Return the text of every page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("potluck_experiments"), undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= FILTERS
    environment.globals |= {"made": MADE, "suite": suite, "scales": [ScaleView(r) for r in scales]}
    environment.globals |= {"same": gains.SAME, "to_tell": TO_TELL, "power": POWER}
    environment.globals |= {"compared": gains.COMPARED, "verdicts": VERDICTS}
    overview, page = map(environment.get_template, ("results.md.j2", "experiment.md.j2"))
    texts = {suite.folder.parent / "docs" / "results.md": overview.render()}
    texts |= {suite.folder / e.name / "RESULTS.md": page.render(e=e) for e in suite.experiments}
    return {path: text.rstrip("\n") + "\n" for path, text in texts.items()}


@dataclass(frozen=True)
class PairView:
    """One pair that was run with F-TIS, as the templates show it."""

    title: str
    same_model: bool
    models: tuple[str, ...]
    controls: list[str]
    gains: dict[tuple[str, ...], gains.PairGain]  # By model, control, measure and when
    cost: PairCost
    reached: dict[tuple[str, str], MeanInterval | None]
    """Accuracy out of distribution by model and setting."""


class ScaleView:
    """A scale as the templates show it."""

    def __init__(self, results: Results) -> None:
        suite, self.scale, self.planned = results.suite, results.scale, results.planned
        self._results, self.cells = results, list(results.cells.values())
        self.families = suite.scales[results.scale].family
        self.seeds = suite.scales[results.scale].seeds
        self.ran = [self.families[name] for name in {cell.family for cell in self.cells}]
        self.drawn = [e for e in suite.experiments if results.of(e)]
        self.tests = [(e, try_claims(e, results)) for e in suite.experiments]
        every = [tests for _, tried in self.tests for tests in tried.values() if tests]
        self.verdicts = [verdict_of_claim(tests) for tests in every]
        self.spread = gains.spread_of(results) if self.cells else []
        found = gains.gains_of(results)
        self.pairs = [self._pair(pair, found) for pair in gains.shared_pairs(results)]
        self.chance = [
            gain.difference
            for pair in self.pairs
            for key, gain in pair.gains.items()
            if pair.same_model and key[:2] == (pair.models[0], "alone") and gain.difference
        ]

    def _pair(self, pair: str, found: Sequence[gains.PairGain]) -> PairView:
        results, suite, title = self._results, self._results.suite, cell(self.title(pair))
        models = suite.models(self.scale, pair)
        controls = gains.controls_of(suite, models)
        columns = [*controls, gains.SHARED]
        its: dict[tuple[str, ...], gains.PairGain]
        its = {(g.model, g.than, g.measure, g.when): g for g in found if g.pair == pair}
        out = {m: results.by_seed(pair, m, "out-of-distribution", "end", columns) for m in models}
        reached = {(m, s): interval_of(out[m][s].dropna()) for m in models for s in columns}
        same, cost = suite.is_same_model(self.scale, pair), cost_of(results, pair)
        return PairView(title, same, models, controls, its, cost, reached)

    def of(self, experiment: Experiment) -> dict[Claim, list[ClaimTest]]:
        return next(tests for e, tests in self.tests if e == experiment)

    def cells_of(self, experiment: Experiment) -> list[CellResult]:
        return list(self._results.of(experiment).values())

    def title(self, pair: str, experiment: Experiment | None = None) -> str:
        """Return the title of FAMILY.PAIR; of FAMILY with the number of the experiment's pairs."""
        family = self._results.suite.family(self.scale, pair)
        if "." in pair or experiment is None:
            return f"{family.title}: {' + '.join(self._results.suite.models(self.scale, pair))}"
        pairs = [name for name in experiment.pairs[self.scale] if name.startswith(f"{pair}.")]
        return f"{family.title}: mean of {counted(len(pairs), 'pair')}"


def cell(text: str) -> str:
    """Put anybody's text on one line of a table: it can neither end its cell nor be markup.

    >>> cell("a | b <i>")
    'a \\\\| b &lt;i>'
    """
    shown = "".join(c for c in " ".join(text.split()) if c.isprintable())[:500]
    return shown.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def accuracy(value: float | None) -> str:
    """
    >>> accuracy(0.9126), accuracy(1), accuracy(-0.0001), accuracy(None)
    ('.913', '1.000', '.000', '-')
    """
    return "-" if value is None else f"{value:z.3f}".replace("0.", ".", 1)


def signed(value: float) -> str:
    """
    >>> signed(0.0126), signed(-0.5), signed(0.0)
    ('+.013', '-.500', '.000')
    """
    text = accuracy(value)
    return text if text[0] == "-" or text == ".000" else f"+{text}"


def _bracketed(interval: MeanInterval | None, shown: Callable[[float], str]) -> str:
    return "{} [{}, {}]".format(*map(shown, interval[:3])) if interval else "-"


def within(interval: MeanInterval | None) -> str:
    """
    >>> within(MeanInterval(0.01, -0.02, 0.04, 5)), within(None)
    ('+.010 [-.020, +.040]', '-')
    """
    return _bracketed(interval, signed)


def accuracy_within(interval: MeanInterval | None) -> str:
    return _bracketed(interval, lambda value: accuracy(min(1.0, max(0.0, value))))


def amount(interval: MeanInterval | None, decimals: int) -> str:
    return _bracketed(interval, lambda value: f"{value:z.{decimals}f}")


def reached(level: LevelReached) -> str:
    return f"never in {level.never} of {level.seeds}" if level.never else amount(level.rounds, 1)


def listed(words: Iterable[str]) -> str:
    """
    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def figure(experiment: Experiment) -> str:
    number = experiment.figure
    return cell(f"Figure {number}" if number.isdecimal() else number or experiment.short)


def heading(experiment: Experiment) -> str:
    """Return "Figure 4: Title"."""
    return f"{figure(experiment)}: " * bool(experiment.figure) + cell(experiment.title)


def bold_headings(notes: str) -> str:
    """Turn the headings of notes into bold lines, as they stand below one of the page."""
    lines = notes.splitlines()
    return "\n".join(f"**{x.lstrip('#').strip()}**" if x.startswith("#") else x for x in lines)


def tally(tests: Sequence[ClaimTest]) -> str:
    return " / ".join(str(sum(test.verdict == verdict for test in tests)) for verdict in VERDICTS)


def in_family(tests: Sequence[ClaimTest]) -> str:
    """Return verdict and tally, and why there is none if it is not for a wide interval."""
    reasons = sorted({test.reason for test in tests} - {"", "interval too wide"})
    why = f" ({cell(', '.join(reasons))})" if reasons else ""
    return f"{verdict_of_claim(tests)} {tally(tests)}{why}" if tests else "-"


def summary(pairs: Sequence[PairView]) -> list[str]:
    """Count how often sharing pays at the end, over all pairs and models."""
    counts: dict[tuple[bool, str], Counter[str]] = {}
    for gain in (gain for pair in pairs for gain in pair.gains.values() if gain.when == "end"):
        counts.setdefault((gain.than == "alone", gain.measure), Counter())[gain.word] += 1
    fewer = "alone with the same generation (half, quarter)"
    return [
        f"{'alone' if key[0] else fewer}, by {plots.KINDS[key[1]]}, of {its.total()} models in "
        f"their pairs: {_phrases({word: str(number) for word, number in its.items()})}"
        for key, its in sorted(counts.items())
        if key[1] in plots.KINDS
    ]


def sentence(pair: PairView) -> str:
    """Sum up one pair at the end."""
    parts = []
    for than in pair.controls:
        greedy, sampled = _of_models(pair, than, "greedy"), _of_models(pair, than, "sampled")
        if greedy == sampled:
            parts.append(f"{than}, it {greedy}, by greedy accuracy and by sampled reward.")
        else:
            parts.append(f"{than}, it {greedy} by greedy accuracy; it {sampled} by sampled reward.")
    return " ".join(f"Against {part}" for part in parts)


def _of_models(pair: PairView, than: str, measure: str) -> str:
    models: dict[str, list[str]] = {}
    for model in pair.models:
        models.setdefault(pair.gains[model, than, measure, "end"].word, []).append(f"`{model}`")
    return _phrases({word: listed(names) for word, names in models.items()})


def _phrases(objects: dict[str, str]) -> str:
    """Return "pays for 3 and is open (floor) for 2", by word."""
    order = [*PHRASES, *sorted(objects.keys() - PHRASES.keys())]
    phrases = {word: PHRASES.get(word, f"is open ({cell(word)}) for {{}}") for word in objects}
    return listed(phrases[word].format(objects[word]) for word in order if word in objects)


FILTERS: dict[str, Any] = {
    "gain": lambda gain: f"{within(gain.difference)} {cell(gain.word)}",
    "said": lambda claim: cell(claim.text.rstrip(".")),
    "together": all_of,
    "values": lambda mapping: list(mapping.values()),
    "verdict": verdict_of_claim,
}
FILTERS |= {
    function.__name__: function
    for function in (
        accuracy, accuracy_within, amount, bold_headings, cell, counted, figure, heading, in_family,
        listed, reached, sentence, signed, summary, tally, within,
    )
}  # fmt: skip
