"""The results as pages and pictures, from nothing but the finished cells.

    docs/results.md                  what was run, every claim, does sharing pay, what it costs
    docs/results/*.png               curves of each experiment, and the intervals of all claims
    experiments/NAME/RESULTS.md      one experiment, test by test

Pages are pure text of the cells: not of the machine, nor of the time. One thing comes from
elsewhere, whether cells are stale, which depends on the code as it is. It stands in
docs/results.md only, by room: the first change in a room changes the page, the next ones do not.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from potluck.reproduce.page.claims import claims_table, staleness, what_ran
from potluck.reproduce.page.costs import spread, what_it_costs
from potluck.reproduce.page.experiment import MADE, experiment_page, picture_name
from potluck.reproduce.page.finished import Finished, finished
from potluck.reproduce.page.markdown import cell
from potluck.reproduce.page.pays import by_chance, does_it_pay, out_of_distribution
from potluck.reproduce.page.words import GLOSSARY
from potluck.reproduce.result import code_digests
from potluck.reproduce.suite import SCALES, Experiment, ExperimentError, Suite


def render(suite: Suite) -> list[Path]:
    """Writes all pages and pictures.

    Returns:
        What was written.

    Raises:
        ExperimentError: a result cannot be read, or a page's place has somebody's own file.
        ConfigError: a recipe that cannot run.
    """
    scales = read_scales(suite, code_digests())
    texts = pages(suite, scales)
    for path in texts:
        _require_ours(path)
    for path, text in texts.items():
        with whole(path) as beside:
            beside.write_text(text, encoding="utf-8", newline="\n")
    return [*texts, *_draw_all(suite, scales)]


def _require_ours(path: Path) -> None:
    """Raises ExperimentError if the file is there and somebody else wrote it."""
    if path.exists() and not path.read_bytes().startswith(MADE.encode()):
        raise ExperimentError(
            f"{path} was not written by potluck reproduce: it does not begin with {MADE!r}; move "
            f"it away to have the results there"
        )


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write ``path``: all of it comes to its place, or what was there before stays.

    As ``node.record.write_whole``, whose room loads torch: pages are written in a second.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def read_scales(suite: Suite, code: Mapping[str, str]) -> list[Finished]:
    """What is there of each scale."""
    return [finished(suite, scale, code) for scale in SCALES if scale in suite.scales]


def pages(suite: Suite, scales: Sequence[Finished]) -> dict[Path, str]:
    """Every page's text."""
    return {results_folder(suite).with_suffix(".md"): overview(suite, scales)} | {
        suite.folder / experiment.name / "RESULTS.md": experiment_page(experiment, scales)
        for experiment in suite.experiments
    }


def results_folder(suite: Suite) -> Path:
    """Of the pictures; the page beside it has its name."""
    return suite.folder.parent / "docs" / "results"


def _draw_all(suite: Suite, scales: Sequence[Finished]) -> list[Path]:
    """The pictures of what was run."""
    from potluck.reproduce.page.curves import draw_curves
    from potluck.reproduce.page.dots import draw_dots
    from potluck.reproduce.page.forest import draw_forest

    folder, written = results_folder(suite), []
    for there in scales:
        if not there.results:
            continue
        written.append(folder / f"claims-{there.scale}.png")
        with whole(written[-1]) as beside:
            draw_forest(there, beside)
        for experiment in drawn(suite, there):
            written.append(folder / picture_name(experiment, there))
            draw = draw_dots if _is_out_of_distribution(experiment) else draw_curves
            with whole(written[-1]) as beside:
                draw(experiment, there, beside)
    return written


def _is_out_of_distribution(experiment: Experiment) -> bool:
    """Whether it is about nothing else."""
    return {claim.measure for claim in experiment.claims} == {"out-of-distribution"}


def drawn(suite: Suite, there: Finished) -> list[Experiment]:
    """The experiments that have a cell to draw."""
    return [experiment for experiment in suite.experiments if there.of(experiment)]


def overview(suite: Suite, scales: Sequence[Finished]) -> str:
    """docs/results.md."""
    parts = [
        MADE,
        "# Every experiment of the paper, and whether it holds",
        "The claims of [F-TIS](https://arxiv.org/abs/2605.22537), and some questions of our own, "
        "each as a statement that can fail, written down before the first run; the page of each "
        "figure dates what was changed later. How to run them, and to add one's own: "
        "[experiments.md](experiments.md).",
        *(what_ran(there) for there in scales),
        "## What the words mean",
        GLOSSARY,
    ]
    for there in scales:
        if there.results:
            parts += _of_scale(suite, there)
    parts += ["## Stale cells", staleness(scales)]
    noted = [experiment for experiment in suite.experiments if experiment.notes]
    if noted:
        parts += ["## What was tried, and what differs from the paper"]
    for experiment in noted:
        parts += [f"### {heading(experiment)}", _under(experiment.notes)]
    return "\n\n".join(parts) + "\n"


def _of_scale(suite: Suite, there: Finished) -> list[str]:
    at = "" if there.scale == "tiny" else f", scale {there.scale}"
    parts = [
        *(f"## All claims{at}", claims_table(there)),
        f"![The interval of every test of every claim](results/claims-{there.scale}.png)",
        *(f"## Does sharing pay?{at}", does_it_pay(there)),
        *(f"## What chance alone does{at}", by_chance(there)),
        *(f"## What it costs{at}", what_it_costs(there)),
        *(f"## How far the seeds lie apart{at}", spread(there)),
        *(f"## Out of distribution{at}", out_of_distribution(there)),
        f"## Curves{at}",
    ]
    for experiment in drawn(suite, there):
        picture = f"results/{picture_name(experiment, there)}"
        parts += [
            f"### {heading(experiment)}",
            f"![{cell(experiment.title)}]({picture})",
        ]
    return parts


def heading(experiment: Experiment) -> str:
    """
    As docs/results.md names it."""
    figure = experiment.figure
    named = f"Figure {figure}: " if figure.isdecimal() else f"{figure}: " if figure else ""
    return f"{named}{cell(experiment.title)}"


def _under(notes: str) -> str:
    """Notes below a heading of the page: their own headings become bold lines."""
    lines = [
        f"**{line.lstrip('#').strip()}**" if line.startswith("#") else line
        for line in notes.splitlines()
    ]
    return "\n".join(lines)
