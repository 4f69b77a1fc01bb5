"""Pictures of a scale: curves or final accuracies of each experiment, and all claims in one."""

import io
import textwrap
from collections.abc import Iterator, Sequence
from itertools import cycle, product
from typing import Any, Final

import matplotlib
import pandas as pd
import seaborn as sns
from matplotlib import pyplot
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from potluck_experiments.cell_files import NodeResult
from potluck_experiments.kinds import BEFORE, DEFAULT, OLDER
from potluck_experiments.results import Results
from potluck_experiments.statistics import interval_of
from potluck_experiments.suite import Experiment
from potluck_experiments.verdicts import CEILING, FLOOR, ClaimTest, try_all

matplotlib.use("agg")
# Okabe and Ito's palette, which the colour-blind can tell apart; the markers differ as well.
QUIET, HOLDS, NO_ROOM = "#5b6570", "#e4f2e7", "#f3f0ec"
GREY, VERMILION, BLUE = "#4d4d4d", "#D55E00", "#0072B2"
PALETTE = (VERMILION, "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "black")
MARKERS = "sp^vPXhD<>"
FIXED: Final = {
    **{"alone": (GREY, "o"), "f-tis": (BLUE, "D"), DEFAULT: (VERMILION, "P")},
    **dict.fromkeys((OLDER, BEFORE), ("#009E73", "*")),
}
VERDICT_COLOURS: Final = {"shown": BLUE, "refuted": VERMILION, "inconclusive": "#8a8a8a"}
SMOOTHED = 3  # rounds over which sampled reward is averaged: each with its neighbours
KINDS = {"greedy": "greedy accuracy", "sampled": "sampled reward"}


def draw_all(results: Results) -> Iterator[tuple[str, Figure]]:
    """Draw the pictures of a scale, one after the other, with their file names."""
    tests = [test for test in try_all(results) if test.claim.primary]
    if tests and results.cells:
        yield f"claims-{results.scale}.png", draw_claims(results, tests)
    for experiment in results.suite.experiments:
        if results.of(experiment):
            about = {claim.measure for claim in experiment.claims}
            draw = draw_final if about == {"out-of-distribution"} else draw_curves
            yield f"{experiment.name}-{results.scale}.png", draw(experiment, results)


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG with at most 256 colours, a third of the bytes, and close it."""
    from PIL import Image  # matplotlib brings it

    whole, small = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, format="png", dpi=80, metadata={"Software": None})
    pyplot.close(figure)
    # Chosen to come near every colour, however rare it is: a verdict may have one bar.
    coverage, plain = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE
    few = Image.open(whole).convert("RGB").quantize(256, method=coverage, dither=plain)
    few.save(small, format="png", optimize=True)
    return small.getvalue()


def curves_of(experiment: Experiment, results: Results) -> pd.DataFrame:
    """Return the points of an experiment's curves, a row each."""
    rows = [
        (pair, model, setting, seed, kind, round, value)
        for pair, setting in product(experiment.pairs.get(results.scale, ()), experiment.settings)
        for seed, its in results.runs.get((pair, setting), {}).items()
        for (model, run), kind in product(its.items(), KINDS)
        for round, value in _points(run.node, kind)
    ]
    head = ["pair", "model", "setting", "seed", "kind", "round", "value"]
    return pd.DataFrame(rows, columns=head)


def mean_of_seeds(curves: pd.DataFrame) -> pd.DataFrame:
    """Pool base pairs by family and by role, the model's name without its number: what stood for
    a seed is now a base pair, the mean over its seeds."""
    pooled = curves.assign(
        pair=curves.pair.str.partition(".")[0],
        model=curves.model.str.rpartition("-")[0],
        seed=curves.pair,
    )
    keys = ["pair", "model", "setting", "seed", "kind", "round"]
    return pooled.groupby(keys, sort=False).value.mean().reset_index()


def _points(node: NodeResult, kind: str) -> list[tuple[int, float]]:
    if kind == "greedy":
        return list(zip(node.eval_rounds, node.greedy, strict=True))
    wide = pd.Series(node.sampled).rolling(SMOOTHED, center=True).mean()
    return list(enumerate(wide.fillna(pd.Series(node.sampled)), 1))


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the 95 % t-interval, as seaborn asks for them."""
    interval = interval_of(values)
    return (interval.low, interval.high) if interval else (min(values), max(values))


def draw_curves(experiment: Experiment, results: Results) -> Figure:
    """Draw a row of panels for each pair: its models by greedy accuracy and by sampled reward."""
    curves, suite, scale = curves_of(experiment, results), results.suite, results.scale
    of_pairs = results.of_base_pairs
    if of_pairs:
        curves = mean_of_seeds(curves)
    curves["panel"] = list(zip(curves.pair, curves.model, curves.kind, strict=True))
    models = curves.groupby("pair", sort=False).model.unique()
    order = models if of_pairs else {p: suite.models(scale, p) for p in experiment.pairs[scale]}
    wanted = [(pair, m, kind) for pair, kind in product(order.keys(), KINDS) for m in order[pair]]
    panels = [panel for panel in wanted if panel in set(curves.panel)]
    limits = {kind: (its.min(), its.max()) for kind, its in curves.groupby("kind").value}
    with style():
        grid = sns.relplot(
            data=curves, x="round", y="value", hue="setting", style="setting", kind="line",
            col="panel", col_order=panels, col_wrap=4, errorbar=bounds, height=3.4, aspect=1.15,
            facet_kws={"sharex": False, "sharey": False}, dashes=False, legend=False,
            err_kws={"alpha": 0.13, "linewidth": 0}, **_looks(experiment),
        )  # fmt: skip
        for axes, (pair, model, kind) in zip(grid.axes.flat, panels, strict=True):
            low, high = limits[kind]
            axes.set(xlabel="rounds", ylabel="", title="", ylim=(low - 0.03, high + 0.03))
            title = f"{suite.family(scale, pair).title}, {model}\n{KINDS[kind]}"
            axes.set_title(title, loc="left", parse_math=False)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        most = curves.groupby("pair").seed.nunique().max() if of_pairs else curves.seed.nunique()
        count = f"{most} {'base pairs' if of_pairs else 'seeds'}"
        about = f"Mean and 95 % interval of {count}. Sampled reward: over "
        return _finish(grid.figure, experiment, results, f"{about}{SMOOTHED} rounds each.")


def draw_final(experiment: Experiment, results: Results) -> Figure:
    """Draw accuracy out of distribution at the end: a row for each model, a point a setting."""
    suite, scale = results.suite, results.scale
    rows = [
        (pair.partition(".")[0], f"{' + '.join(suite.models(scale, pair))}: {model}", setting,
         run.node.out_of_distribution)
        for pair, setting in product(experiment.pairs[scale], experiment.settings)
        for its in results.runs.get((pair, setting), {}).values()
        for model, run in its.items()
    ]  # fmt: skip
    chosen = pd.DataFrame(rows, columns=["family", "row", "setting", "value"])
    looks = _looks(experiment)
    looks["markers"] = list(looks["markers"].values())
    with style():
        grid = sns.catplot(
            data=chosen, x="value", y="row", col="family", hue="setting", kind="point",
            linestyle="none", dodge=0.4, errorbar=bounds, err_kws={"linewidth": 2}, legend=False,
            height=0.4 * chosen.row.nunique() + 2, aspect=1.2, sharey=False, **looks,
        )  # fmt: skip
        for family, axes in grid.axes_dict.items():
            axes.axvspan(0, FLOOR, color=NO_ROOM, lw=0, zorder=0)
            axes.axvspan(CEILING, 1, color=NO_ROOM, lw=0, zorder=0)
            axes.set(xlim=(0, 1), xlabel="greedy accuracy out of distribution", ylabel="", title="")
            axes.set_title(suite.family(scale, family).title, loc="left", parse_math=False)
            axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        about = "At the end, mean and 95 % interval over the seeds. Grey: floor and ceiling."
        return _finish(grid.figure, experiment, results, about)


def styles_of(settings: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return colour and marker of each: some look the same in every picture."""
    taken = {FIXED[name][0] for name in settings if name in FIXED}
    colours = cycle(colour for colour in PALETTE if colour not in taken)
    free = zip(colours, cycle(MARKERS), strict=False)
    return {name: FIXED.get(name) or next(free) for name in settings}


def _looks(experiment: Experiment) -> dict[str, Any]:
    styles = styles_of(experiment.settings)
    colours, markers = ({name: its[i] for name, its in styles.items()} for i in (0, 1))
    return {"hue_order": list(styles), "palette": colours, "markers": markers}


def style() -> Any:
    matplotlib.rcdefaults()  # a user's matplotlibrc must not change the picture
    return sns.axes_style("whitegrid", {"axes.spines.left": False})


def _finish(figure: Figure, experiment: Experiment, results: Results, about: str) -> Figure:
    """Add the title and the legend, which says what each setting means."""
    height, settings = figure.get_figheight(), results.suite.settings
    legend_height = 0.3 + 0.3 * -(-len(experiment.settings) // 2)
    if height < legend_height + 4:  # a single row of panels needs room of its own
        height += legend_height + 0.9
        figure.set_figheight(height)
    figure.tight_layout(rect=(0, legend_height / height, 1, 1 - 0.9 / height))
    handles = [
        Line2D([], [], color=colour, marker=marker, label=settings[name].legend)
        for name, (colour, marker) in styles_of(experiment.settings).items()
    ]
    return label(figure, textwrap.shorten(experiment.title, 90), about, handles, columns=2)


def label(
    figure: Figure, title: str, about: str, handles: Sequence[Artist], columns: int
) -> Figure:
    height = figure.get_figheight()
    figure.text(0.01, 1 - 0.35 / height, title, size=18, weight="bold", parse_math=False)
    figure.text(0.01, 1 - 0.7 / height, about, size=12, color=QUIET)
    legend = figure.legend(handles=handles, loc="lower left", ncols=columns, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def draw_claims(results: Results, tests: Sequence[ClaimTest]) -> Figure:
    """Draw a bar for each test, and in green where its claim says that it lies."""
    row = 0.62
    inside = row * len(tests)
    with style():
        figure = Figure(figsize=(14, inside + 2))
        axes = figure.add_axes((0.6, 1 / (inside + 2), 0.38, inside / (inside + 2)))
        ends = [end for t in tests if t.difference for end in t.difference[:3]]
        limits = min([-0.06, *ends]) - 0.02, max([0.06, *ends]) + 0.02
        axes.set(xlim=limits, ylim=(inside, 0), yticks=[])
        axes.axvline(0, color=QUIET, linewidth=1)
        for at, test in enumerate(tests):
            _draw_claim(axes, results, test, row * at, row * (at + 1))
        handles = [
            Patch(color=HOLDS, label="where the claim holds"),
            *(Line2D([], [], color=c, lw=3, label=v) for v, c in VERDICT_COLOURS.items()),
        ]
        about = "Bars: 95 % intervals of mean differences; thick: at 90 %, for claims of equality."
        return label(figure, "The claims put first", about, handles, columns=len(handles))


def _draw_claim(axes: Axes, results: Results, test: ClaimTest, top: float, bottom: float) -> None:
    claim, (left, right) = test.claim, axes.get_xlim()
    low = {"below": left, "above": claim.margin}.get(claim.lies, -claim.margin)
    high = {"below": -claim.margin, "within": claim.margin}.get(claim.lies, right)
    axes.fill_betweenx([top + 0.04, bottom - 0.04], low, high, color=HOLDS, lw=0)
    middle, colour = (top + bottom) / 2, VERDICT_COLOURS[test.verdict]
    if found := test.difference:
        axes.plot([found.low, found.high], [middle, middle], color=colour, lw=2)
        if claim.lies in ("within", "not below"):  # decided by the interval at 90 %
            axes.plot(found.at(0.9)[1:3], [middle, middle], color=colour, lw=5)
        axes.plot([found.mean], [middle], color=colour, marker="o", ms=8)
    figure = test.experiment.figure
    name = "Fig. " * figure.isdecimal() + (figure or test.experiment.short)
    kind = f"{results.suite.family(results.scale, test.kind).title}: " if test.kind else ""
    words = (-1.56, name, QUIET), (-1.4, textwrap.fill(kind + claim.text, 70), "black")
    for x, text, shade in (*words, (-0.24, test.verdict, colour)):
        looks: dict[str, Any] = {"color": shade, "va": "center", "size": 11, "parse_math": False}
        axes.text(x, middle, text, transform=axes.get_yaxis_transform(), **looks)
