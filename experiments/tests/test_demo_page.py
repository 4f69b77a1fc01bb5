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
SHARE = r"[+-]?\d?\.\d{3}"
LINES = (ROOT / "experiments" / "demo.jsonl").read_text(encoding="utf-8").splitlines()
ROWS: dict = {}
for line in map(json.loads, LINES):
    ROWS.setdefault(line["model"], []).append(line)


@pytest.mark.parametrize("model", ["adder", "subtractor"])
def test_a_row_has_the_means_and_differences_of_the_seeds(model):
    told = re.search(rf"^\| {model} \| (.*) \|$", PAGE, re.M)[1]
    numbers = list(map(float, re.findall(SHARE, told)))
    rewards = [line["reward"] for line in ROWS[model]]
    assert numbers[:3] == pytest.approx(
        [mean(each) for each in zip(*rewards, strict=True)], abs=1e-3
    )
    for other, found in ((1, numbers[3:6]), (2, numbers[6:9])):
        interval = interval_of(its[0] - its[other] for its in rewards)
        # The rows are rounded, and t stretches what they lose.
        assert found == pytest.approx(
            interval[:3], abs=0.0005 * (1 + t_quantile(0.975, interval.n - 1))
        )


def test_each_seed_has_what_the_page_says_it_has():
    assert "each of the five has more than .05 over half for both models" in " ".join(PAGE.split())
    for its in ROWS.values():
        assert [line["seed"] for line in its] == [0, 1, 2, 3, 4]
        assert all(line["reward"][0] - line["reward"][1] > 0.05 for line in its)
        assert {tuple(line["written"]) for line in its} == {(2880, 2880, 5760)}
    assert "2,880" in PAGE
    assert "5,760" in PAGE
