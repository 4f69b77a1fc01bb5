"""The tables of docs/demo.md from the rows of its seeds, and its picture's caption from these."""

import re
from pathlib import Path
from statistics import mean

import pytest

from potluck_experiments.statistics import interval_of, t_quantile

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "demo.md").read_text(encoding="utf-8")
SETTINGS = ("alone", "half", "LWS")
SHARE = r"[+-]?\d?\.\d{3}"


def tables():
    """Rows of numbers of each seed, and of the means, by model; the differences by their names."""
    seeds, means, gaps = {}, {}, {}
    for line in PAGE.splitlines():
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        if re.fullmatch(r"\w+ - \w+", cells[0]):
            gaps[cells[0]] = [list(map(float, re.findall(SHARE, cell))) for cell in cells[1:]]
        elif len(cells) == 2 + 9 and re.fullmatch(SHARE, cells[2]):
            rows = means if cells[1] == "mean" else seeds
            rows.setdefault(cells[0], []).append(list(map(float, cells[2:])))
    return seeds, means, gaps


SEEDS, MEANS, GAPS = tables()


def test_there_are_both_models_with_as_many_seeds_and_the_three_differences():
    assert set(SEEDS) == set(MEANS) == {"large", "small"}
    assert len(SEEDS["large"]) == len(SEEDS["small"]) >= 2
    assert set(GAPS) == {"LWS - half", "LWS - alone", "alone - half"}


@pytest.mark.parametrize("model", SEEDS)
def test_a_mean_is_that_of_its_column(model):
    (told,) = MEANS[model]
    assert told == pytest.approx([mean(each) for each in zip(*SEEDS[model], strict=True)], abs=1e-3)


@pytest.mark.parametrize("measure", range(3))
@pytest.mark.parametrize("gap", GAPS)
def test_a_difference_and_its_interval_are_those_of_the_rows(gap, measure):
    one, other = (3 * measure + SETTINGS.index(name) for name in gap.split(" - "))
    pairs = zip(*SEEDS.values(), strict=True)
    interval = interval_of(mean(row[one] - row[other] for row in pair) for pair in pairs)
    # The rows are rounded, and t stretches what they lose.
    lost = 0.0005 * (1 + t_quantile(0.975, interval.n - 1))
    assert GAPS[gap][measure] == pytest.approx(interval[:3], abs=lost)


def test_the_caption_of_the_picture_says_what_the_tables_say():
    caption = " ".join(PAGE.partition("(demo.png)")[2].partition("*\n\n")[0].split())
    told = re.findall(rf"(LWS|half|alone,[a-z ]+,) ({SHARE})", caption)
    assert len(told) == 3
    for name, share in told:
        column = SETTINGS.index(name.split(",")[0])
        expected = mean(rows[0][column] for rows in MEANS.values())
        assert float(share) == pytest.approx(expected, abs=1e-3)
    (seeds,) = re.findall(r"mean of (\w+) seeds", caption)
    assert len(SEEDS["large"]) == ["no", "one", "two", "three", "four", "five"].index(seeds)
