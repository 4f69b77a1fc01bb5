"""The results as pages and pictures, from nothing but the finished cells.

Pages are docs/results.md and experiments/NAME/RESULTS.md, pictures docs/results/*.png. They are
the same to the last letter on every machine, at any time, whatever the code is meanwhile.
"""

import re
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

import jinja2

from potluck.files import write_atomically
from potluck_experiments.costs import cost_of
from potluck_experiments.kinds import BEFORE, CONTROLS, OLDER, Kind, newest, older
from potluck_experiments.notations import writers
from potluck_experiments.results import Results, read_results
from potluck_experiments.statistics import MeanInterval, interval_of
from potluck_experiments.suite import SCALES, ExperimentError, Suite
from potluck_experiments.verdicts import VERDICTS, holm, try_all

MADE = "<!-- Written by `potluck reproduce --render` from the finished cells. Do not edit. -->"
COMPARISONS = (
    ("LWS - half", OLDER, "half"), ("LWS - smaller groups", OLDER, "half-smaller"),
    ("LWS - half, x2", OLDER, "half-emphasised"), ("LWS - own part", OLDER, "own-part"),
    ("LWS - alone", OLDER, "alone"),
    ("LWS - F-TIS", OLDER, "f-tis"), ("F-TIS - half", "f-tis", "half"),
    ("LWS, c = 8 - half", "lws-8", "half"),
)  # fmt: skip
"""Rows of the table of the older pairs. Half: of four a quarter."""
HEADING = re.compile(r"^#+[ \t]*(.*?)[ \t]*$", re.MULTILINE)


def render(suite: Suite) -> list[Path]:
    """Write all pages and pictures, and return their paths. Somebody's own files are refused."""
    from potluck_experiments import plots, plots_kinds  # seaborn: a second

    scales = [read_results(suite, scale) for scale in SCALES]
    texts = pages(suite, scales)
    for path in texts:
        if path.exists() and not path.read_bytes().startswith(MADE.encode()):
            raise ExperimentError(
                f"{path} was not written by potluck reproduce: it does not begin with {MADE!r}; "
                f"move it away to have the results there"
            )
    pictures = suite.folder.parent / "docs" / "results"
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, text.encode())
    written = list(texts)
    for results in scales:
        for name, figure in chain(plots.draw_all(results), plots_kinds.draw_all(results)):
            pictures.mkdir(exist_ok=True)
            written.append(pictures / name)
            write_atomically(written[-1], plots.png(figure))
    return written


def pages(suite: Suite, scales: Sequence[Results]) -> dict[Path, str]:
    """Return the text of every page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("potluck_experiments"), undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    filters = accuracy, cell, holm, interval_of, over, signed, within
    environment.filters |= {each.__name__: each for each in filters}
    environment.filters["bold_headings"] = lambda notes: HEADING.sub(r"**\1**", notes)
    environment.globals |= {
        **{"made": MADE, "suite": suite, "scales": scales, "verdicts": VERDICTS},
        **{
            "cost_of": cost_of,
            "ratio": "{:.2f}".format,
            "accuracy": accuracy,
            "harm": harm,
            "within": within,
        },
        **{"newest": newest, "older": older, "writers": writers},
        **{"controls": CONTROLS, "before": BEFORE, "comparisons": COMPARISONS},
        "tried_at": {results.scale: try_all(results) for results in scales},
    }
    overview, page = map(environment.get_template, ("results.md.j2", "experiment.md.j2"))
    demo = suite.folder / "demo.md"
    own = demo.read_text(encoding="utf-8") if demo.exists() else ""
    texts = {suite.folder.parent / "docs" / "results.md": overview.render(demo=own)}
    texts |= {suite.folder / e.name / "RESULTS.md": page.render(e=e) for e in suite.experiments}
    return {path: text.rstrip("\n") + "\n" for path, text in texts.items()}


def harm(kinds: Sequence[Kind]) -> str:
    """Say first where the default earns less than the better half."""
    below: dict[bool, list[str]] = {True: [], False: []}
    for kind in kinds:
        for role in kind.told:
            found = interval_of(kind.minus(kind.better(role), role=role))
            if found and found.mean < 0:
                name = kind.title + f", {role}" * bool(role)
                below[found.high < 0].append(f"{cell(name)} {within(found)}")
    shown, not_shown = ("; ".join(below[is_shown]) or "none" for is_shown in (True, False))
    return (
        f"**Where the default harms**: it earns less than the better half, shown at 95 %: {shown}; "
        f"in the mean, but not shown: {not_shown}."
    )


def over(values: Sequence[float], pairs: int) -> str:
    """Show a mean with its interval, and the number of base pairs where it is another one.

    >>> over([0.1, 0.2], 2), over([0.1, 0.2], 8), over([0.1], 8)
    ('+.150 [-.485, +.785]', '+.150 [-.485, +.785] (2)', '-')
    """
    found = interval_of(values)
    return within(found) + f" ({len(values)})" * bool(found and len(values) != pairs)


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
