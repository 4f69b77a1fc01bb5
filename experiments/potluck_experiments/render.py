"""The results as pages and pictures, from nothing but the finished cells.

Pages are docs/results.md and experiments/NAME/RESULTS.md, pictures docs/results/*.png. They are
the same to the last letter on every machine, at any time, whatever the code is meanwhile.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

import jinja2

from potluck_experiments import plots
from potluck_experiments.costs import cost_of
from potluck_experiments.results import Results, read_results, write_atomically
from potluck_experiments.statistics import MeanInterval, interval_of
from potluck_experiments.suite import SCALES, ExperimentError, Suite
from potluck_experiments.verdicts import VERDICTS, holm, pooled, try_all

MADE = "<!-- Written by `potluck reproduce --render` from the finished cells. Do not edit. -->"
SAME_GENERATION = {2: "half", 4: "quarter"}
"""Setting in which one model alone writes as much as one of so many nodes."""
HEADING = re.compile(r"^#+[ \t]*(.*?)[ \t]*$", re.MULTILINE)


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
    filters = accuracy, cell, holm, interval_of, signed, within
    environment.filters |= {each.__name__: each for each in filters}
    environment.filters["bold_headings"] = lambda notes: HEADING.sub(r"**\1**", notes)
    environment.globals |= {
        **{"made": MADE, "suite": suite, "scales": scales, "verdicts": VERDICTS},
        **{"cost_of": cost_of, "pooled": pooled, "nearness": nearness, "ratio": "{:.2f}".format},
        **{"same_generation": SAME_GENERATION, "kinds_of": kinds_of},
        "tried_at": {results.scale: try_all(results) for results in scales},
    }
    overview, page = map(environment.get_template, ("results.md.j2", "experiment.md.j2"))
    demo = suite.folder / "demo.md"
    own = demo.read_text(encoding="utf-8") if demo.exists() else ""
    texts = {suite.folder.parent / "docs" / "results.md": overview.render(demo=own)}
    texts |= {suite.folder / e.name / "RESULTS.md": page.render(e=e) for e in suite.experiments}
    return {path: text.rstrip("\n") + "\n" for path, text in texts.items()}


def kinds_of(results: Results, setting: str) -> dict[str, list[str]]:
    """Return the pairs of each family that ran in this setting."""
    pairs = [p for p in results.suite.pairs(results.scale) if (p, setting) in results.runs]
    names = dict.fromkeys(pair.partition(".")[0] for pair in pairs)
    return {name: [p for p in pairs if p.startswith(f"{name}.")] for name in names}


def nearness(results: Results, pairs: Sequence[str], setting: str, field: str) -> float | None:
    """Return the mean of a field of NodeResult over the runs of these pairs that have it."""
    found = [
        value
        for pair in pairs
        for models in results.runs.get((pair, setting), {}).values()
        for run in models.values()
        if (value := getattr(run.node, field)) is not None
    ]
    return mean(found) if found else None


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


def within(interval: MeanInterval | None, shown: Callable[[float], str] = signed) -> str:
    """
    >>> within(MeanInterval(0.01, -0.02, 0.04, 5)), within(None)
    ('+.010 [-.020, +.040]', '-')
    """
    return "{} [{}, {}]".format(*map(shown, interval[:3])) if interval else "-"
