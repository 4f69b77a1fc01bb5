"""Kinds of pair that lack runs, notations and pictures: numbers recomputed in plain loops.

What is whole is recomputed from the committed cells by test_numbers.py."""

import msgspec
import pytest
from matplotlib import pyplot
from msgspec.structs import replace

import oracle
from drawn_up import GAIN, ROLES, drawn_up
from made_up import node
from potluck_experiments import plots_kinds, render
from potluck_experiments.kinds import BEFORE, DEFAULT, OLDER, newest, older
from potluck_experiments.notations import habit_of, over_pairs, writers
from potluck_experiments.results import NotationCurve
from test_numbers import numbers, rows

pytestmark = pytest.mark.page

NUMBERS = (200, 201, 202)
HALVES = {"size": ("half", "half-smaller"), "near": ("half", "half-smaller"),
          "four": ("quarter", "quarter-smaller")}  # fmt: skip


@pytest.fixture(scope="module")
def there():
    return drawn_up(NUMBERS)


def as_json(results):
    return [msgspec.json.decode(msgspec.json.encode(cell)) for cell in results.cells.values()]


def pairs_of(family):
    return [[f"{role}-{number}" for role in ROLES[family]] for number in NUMBERS]


def minus(of, family, setting, than, **what):
    """One setting less another in plain loops, for each pair."""
    return oracle.differences(as_json(of), family, pairs_of(family), setting, than, **what)


def test_a_pair_that_lacks_the_default_or_a_half_is_left_out_and_one_control_costs_itself_alone():
    missing = [("near", 200, DEFAULT), ("near", 201, "half-smaller"), ("size", 202, "alone")]
    some = drawn_up(NUMBERS, without=missing)
    kinds = {kind.name: kind for kind in newest(some)}
    assert kinds["near"].pairs == ("near.202",)
    assert kinds["size"].pairs == ("size.200", "size.201", "size.202")
    assert (len(kinds["size"].minus("alone")), len(kinds["size"].minus("f-tis"))) == (2, 3)
    (row,) = [row for row in rows(page(some)) if row[0] == "two sizes" and len(row) == 6]
    assert [cell.endswith("(2)") for cell in row[1:]] == [False, False, True, False, False]


def test_a_pair_counts_from_its_first_seed_on_and_seeds_are_paired(there):
    some = drawn_up(NUMBERS, once=[("size", 200, DEFAULT), ("size", 201, "half-smaller")])
    (size, *_) = newest(some)
    assert (size.pairs, size.count) == (("size.200", "size.201", "size.202"), "3 (5 runs)")
    expected, whole = (minus(of, "size", DEFAULT, "half-smaller") for of in (some, there))
    assert size.minus("half-smaller") == pytest.approx(expected)
    assert [a == b for a, b in zip(expected, whole, strict=True)] == [False, False, True]
    assert ["two sizes", "3 (5 runs)"] in [row[:2] for row in rows(page(some))]


def test_pairs_of_the_default_before_stand_by_themselves(there):
    was = drawn_up(NUMBERS, settings=(OLDER, "half", "own-part"))
    assert (older(there), newest(was)) == ([], [])
    assert {kind.name: kind.halves for kind in older(was)} == {"size": ("half",), "near": ("half",)}
    (near,) = [kind for kind in older(was) if kind.name == "near"]
    assert near.minus("half") == pytest.approx(minus(was, "near", OLDER, "half"))


# Notations


def test_the_notations_of_models_are_as_plain_loops_count_them(there):
    cells, seen = as_json(there), []
    for of in writers(newest(there)):
        seen.append((of.kind.name, of.roles))
        same = HALVES[of.kind.name][0]
        assert of.settings == [same, "own-part", BEFORE, DEFAULT]
        for setting in of.settings:
            for rounds in (range(2), range(2, of.rounds)):
                expected = oracle.notation(
                    cells, of.kind.name, pairs_of(of.kind.name), setting, of.roles,
                    rounds.start, rounds.stop,
                )  # fmt: skip
                for field, value in zip(("share", "own", "other"), expected, strict=True):
                    found = over_pairs(of, setting, rounds, field)
                    assert sum(found) / len(found) == pytest.approx(value)
    assert seen == [("near", ("columns", "terse")), ("four", ("columns",)), ("four", ("terse",))]


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


def page(results):
    """docs/results.md"""
    return next(iter(render.pages(results.suite, [results]).values()))


def test_the_page_says_first_where_the_default_harms(there):
    said = "**Where the default harms**: it earns less than the better half, shown at 95 %: "
    assert f"{said}none; in the mean, but not shown: none." in page(there)
    harmed = drawn_up(NUMBERS, gain=GAIN | {DEFAULT: -0.2, "quarter": 0.15})
    shown = page(harmed).split(said)[1].split("; in the mean")[0].split("; ")
    assert [each.split(" -")[0] for each in shown] == [
        "two sizes", "near notations", "four nodes", "four nodes, small", "four nodes, large",
        "four nodes, columns", "four nodes, terse",
    ]  # fmt: skip
    its = minus(harmed, "four", DEFAULT, "quarter", role="terse")
    assert numbers(shown[-1]) == pytest.approx(oracle.interval(its), abs=0.001)


def test_pictures_show_every_kind_node_and_notation(there):
    drawn = dict(plots_kinds.draw_all(there))
    assert list(drawn) == ["gains-drawn.png", "kinds-drawn.png", "notations-drawn.png"]
    panels = drawn["kinds-drawn.png"].axes
    assert [axes.get_title(loc="left") for axes in panels] == [
        "minus the better half", "minus own part only", "minus alone, all of it", "minus F-TIS",
        "minus LWS, c = 1",
    ]  # fmt: skip
    labels = [text.get_text() for text in panels[0].get_yticklabels()]
    assert labels == ["two sizes (3)", "near notations (3)", "four nodes (3)",
                      "· small", "· large", "· columns", "· terse"]  # fmt: skip
    interval = oracle.interval(minus(there, "size", DEFAULT, "half-smaller"))[1:]
    gains = drawn["gains-drawn.png"]
    for axes, width in ((panels[0], 2), (gains.axes[0], 3.5)):
        bars = [line.get_xdata() for line in axes.lines if line.get_lw() == width]
        first = next(bar for bar in bars if len(bar) == 2)
        assert list(first) == pytest.approx(interval, abs=1e-4)
    more = sum(bar[0] > 0 for bar in bars)
    assert f"earns more in {more} of 3 kinds of pair, less in none" in gains.texts[0].get_text()
    courses = drawn["notations-drawn.png"].axes
    assert len(courses) == 3 * 3
    assert [len(axes.lines) for axes in courses] == [4] * 9
    pyplot.close("all")
