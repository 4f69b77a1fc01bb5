"""Kinds of pair that lack runs, notations and pictures, on the committed cells of a scale.

What is whole is recomputed in plain loops by test_numbers.py."""

from pathlib import Path

import msgspec
import pytest
from matplotlib import pyplot
from msgspec.structs import replace

import oracle
from made_up import node
from potluck_experiments import plots_kinds, render
from potluck_experiments.cell_files import NotationCurve
from potluck_experiments.kinds import BEFORE, DEFAULT, newest
from potluck_experiments.notations import habit_of, over_pairs, writers
from potluck_experiments.results import read_results, results_of
from potluck_experiments.suite import read_suite
from test_numbers import Kind, numbers

pytestmark = pytest.mark.page


@pytest.fixture(scope="module")
def there():
    return read_results(read_suite(Path(__file__).parents[1]), "drawn")


def changed(there, change):
    """The results of what ``change`` makes of each cell; None: it is not there."""
    cells = {name: change(cell) for name, cell in there.cells.items()}
    return results_of(there.suite, there.scale, {n: c for n, c in cells.items() if c})


def test_a_pair_that_lacks_the_default_or_a_half_is_left_out_and_one_control_costs_itself(there):
    (whole,) = [kind for kind in newest(there) if kind.name == "near"]
    first, second, third, *rest = whole.pairs
    missing = {(first, DEFAULT), (second, "half-smaller"), (third, "alone")}

    def some(cell):
        pair = f"{cell.family}.{cell.models[0].rpartition('-')[2]}"
        return None if (pair, cell.setting) in missing else cell

    (near,) = [kind for kind in newest(changed(there, some)) if kind.name == "near"]
    assert near.pairs == (third, *rest)
    assert (len(near.minus("alone")), len(near.minus("half"))) == (len(rest), 1 + len(rest))
    assert near.fewer("alone") == f" ({len(rest)})"


# Notations


def test_the_notations_of_models_are_as_plain_loops_count_them(there):
    seen = []
    for of in writers(newest(there)):
        seen.append((of.kind.name, of.roles))
        kind = Kind("drawn", of.kind.name)
        assert {*of.settings} == {kind.halves[0], "own-part", BEFORE, DEFAULT}
        for setting in of.settings:
            for rounds in (range(2), range(2, of.rounds)):
                its = setting, of.roles, rounds.start, rounds.stop
                expected = oracle.notation(kind.cells, of.kind.name, kind.pairs, *its)
                for field, value in zip(("share", "own", "other"), expected, strict=True):
                    found = over_pairs(of, setting, rounds, field)
                    assert (sum(found) / len(found) if found else None) == pytest.approx(value)
    assert ("near", ("columns", "terse")) in seen
    assert ("four", ("columns",)) in seen


def habit(**curves):
    made = node(rounds=2, greedy=(0.1, 0.2))
    notations = {name: NotationCurve(*curve) for name, curve in curves.items()}
    return habit_of(replace(made, notations=notations), "columns", range(2))


def test_what_a_notation_earns_is_told_of_five_answers_and_more():
    few = habit(columns=((3, 2), (1, 2)), terse=((2, 2), (2, 0)))
    assert few == (4 / 9, 3 / 5, None)
    assert habit(columns=((1, 0), (1, 0)), terse=((6, 4), (1, 1))) == (10 / 11, None, 2 / 10)
    assert habit() == (None, None, None)


# The page and the pictures


def test_the_page_says_first_where_the_default_harms(there):
    def poor(cell):
        if (cell.family, cell.setting) != ("near", DEFAULT):
            return cell
        nodes = {name: replace(its, sampled=(0.0,) * len(its.sampled))
                 for name, its in cell.node.items()}  # fmt: skip
        return msgspec.structs.replace(cell, node=nodes)

    harmed = changed(there, poor)
    text = next(iter(render.pages(harmed.suite, [harmed]).values()))
    said = "**Where the default harms**: it earns less than the better half, shown at 95 %: "
    shown = text.split(said)[1].split("; in the mean")[0]
    (near,) = [kind for kind in newest(harmed) if kind.name == "near"]
    assert shown.startswith(f"{near.title} -")
    interval = oracle.interval(near.minus(near.better()))
    assert numbers(shown) == pytest.approx(interval, abs=0.001)


def test_pictures_show_every_kind_node_and_notation(there):
    drawn, kinds = dict(plots_kinds.draw_all(there)), newest(there)
    assert list(drawn) == ["gains-drawn.png", "kinds-drawn.png", "notations-drawn.png"]
    panels = drawn["kinds-drawn.png"].axes
    assert [axes.get_title(loc="left") for axes in panels] == [
        "minus the better half", "minus own part only", "minus alone, all of it", "minus F-TIS",
        "minus LWS, c = 1",
    ]  # fmt: skip
    labels = [text.get_text() for text in panels[0].get_yticklabels()]
    assert labels == [
        f"· {role}" if role else f"{kind.title} ({len(kind.pairs)})"
        for kind in kinds for role in kind.told
    ]  # fmt: skip
    gains = drawn["gains-drawn.png"]
    for axes, width in ((panels[0], 2), (gains.axes[0], 3.5)):
        bars = [line.get_xdata() for line in axes.lines if line.get_lw() == width]
        interval = oracle.interval(kinds[0].minus(kinds[0].better()))[1:]
        assert list(next(bar for bar in bars if len(bar) == 2)) == pytest.approx(interval, abs=1e-4)
    more = sum(bar[0] > 0 for bar in bars)
    assert f"earns more in {more} of {len(kinds)} kinds of pair" in gains.texts[0].get_text()
    rows = list(writers(kinds))
    courses = drawn["notations-drawn.png"].axes
    assert [len(axes.lines) for axes in courses] == [len(of.settings) for of in rows for _ in "abc"]
    pyplot.close("all")
