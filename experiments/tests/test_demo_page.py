"""What docs/results.md says of the demo, from experiments/demo.jsonl."""

import json
import re
from pathlib import Path
from statistics import mean

import pytest

from potluck_experiments.statistics import interval_of, t_quantile

pytestmark = pytest.mark.page

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "experiments" / "demo.md").read_text(encoding="utf-8")
SETTINGS = ("alone", "half", "LWS")
MEASURES = ("sampled", "greedy", "four_digits")
SHARE = r"[+-]?\d?\.\d{3}"
LINES = (ROOT / "experiments" / "demo.jsonl").read_text(encoding="utf-8").splitlines()
SEEDS: dict = {}
for line in map(json.loads, LINES):
    SEEDS.setdefault(line["seed"], []).append(line)
GAPS = {
    found[1]: [list(map(float, re.findall(SHARE, cell))) for cell in found[2].split("|")]
    for found in re.finditer(r"^\| (\w+ - \w+) \| (.*) \|$", PAGE, re.M)
}


def test_there_are_both_models_with_each_seed_and_the_three_differences():
    assert len(SEEDS) >= 2
    assert all({line["model"] for line in its} == {"large", "small"} for its in SEEDS.values())
    assert set(GAPS) == {"LWS - half", "LWS - alone", "alone - half"}


@pytest.mark.parametrize("measure", range(3))
@pytest.mark.parametrize("gap", GAPS)
def test_a_difference_and_its_interval_are_those_of_the_rows(gap, measure):
    one, other = (SETTINGS.index(name) for name in gap.split(" - "))
    rows = [[line[MEASURES[measure]] for line in its] for its in SEEDS.values()]
    interval = interval_of(mean(row[one] - row[other] for row in pair) for pair in rows)
    # The rows are rounded, and t stretches what they lose.
    lost = 0.0005 * (1 + t_quantile(0.975, interval.n - 1))
    assert GAPS[gap][measure] == pytest.approx(interval[:3], abs=lost)


def test_the_caption_of_the_picture_says_what_the_rows_say():
    caption = " ".join(PAGE.partition("(results/demo.png)")[2].partition("*\n\n")[0].split())
    told = re.findall(rf"(LWS|half|alone,[a-z ]+,) ({SHARE})", caption)
    assert len(told) == 3
    for name, share in told:
        column = SETTINGS.index(name.split(",")[0])
        expected = mean(line["sampled"][column] for its in SEEDS.values() for line in its)
        assert float(share) == pytest.approx(expected, abs=1e-3)
    assert "mean of five seeds" in caption
    assert len(SEEDS) == 5
