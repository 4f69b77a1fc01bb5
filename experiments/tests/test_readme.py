"""The numbers of README.md, docs/partners.md and demo.md, from the committed cells and runs."""

import json
import re
from pathlib import Path
from statistics import mean

import pytest

import oracle
from potluck_experiments.statistics import interval_of, t_quantile
from test_numbers import DEFAULT, FILES, Kind, numbers

pytestmark = pytest.mark.page

ROOT = Path(__file__).parents[2]
FAMILIES = {
    "two sizes": "size",
    "one skill each": "complementary",
    "one trained in full": "lora",
    "an adapter": "lora",
    "four": "four",
    "far notations": "far",
    "near notations": "near",
}
"""Beginning of the first cell of a table or row, and the family that it is about."""


def family_of(cell):
    found = [its for words, its in FAMILIES.items() if cell.strip("*").startswith(words)]
    return found[0] if found else ""


MAZES = ("maze", "maze-skill")


def fresh(family, than):
    """Interval over the fresh pairs of the default less ``than``, which may be "better": half."""
    kind = Kind("drawn", family)
    return oracle.interval(kind.minus(DEFAULT, kind.better() if than == "better" else than))


def test_the_gains_of_partners_are_those_of_the_cells():
    page = (ROOT / "docs" / "partners.md").read_text()
    rows = re.findall(r"^\| (.*?) \| (none|\.\d{3}) \|$", page, re.MULTILINE)
    found = {family_of(kind): gain for kind, gain in rows}
    assert set(found) == set(FAMILIES.values())
    for family, gain in found.items():
        middle, low, _ = fresh(family, "better")
        assert (gain != "none") == (low > 0)
        assert gain == "none" or float(gain) == pytest.approx(middle, abs=0.00051)


def test_the_core_time_of_a_pair_is_that_of_the_cells():
    spent = {"lws": 0.0, "alone": 0.0}
    for cell in FILES.values():
        # Those that read pairs of characters, or have no lws, ran alone in another comparison.
        name, _, number = cell["models"][0].rpartition("-")
        is_of_size = (cell["scale"], cell["family"]) == ("drawn", "size")
        if is_of_size and int(number) < 200 and "-bpe" not in name and cell["setting"] in spent:
            spent[cell["setting"]] += cell["cpu_s"]
    text = (ROOT / "docs" / "partners.md").read_text()
    (told,) = re.findall(r"the pair took\s+(\.\d\d) of the core time", text)
    assert float(told) == pytest.approx(spent["lws"] / spent["alone"], abs=0.0051)


def test_what_the_readme_says_of_sharing_is_that_of_the_cells():
    page = (ROOT / "README.md").read_text().partition("## Does it help?")[2].partition("\n## ")[0]
    said = " ".join(page.split())
    pairs = ["size", "complementary", "rare", "near", "lora", "far"]
    halves = [fresh(family, "better") for family in (*pairs, "four", *MAZES)]
    assert [low > 0 for _, low, _ in halves].count(True) == 7
    assert "in seven of nine kinds" in said
    assert not any(high < 0 for *_, high in halves)
    assert "and in none less" in said
    alone = {family: fresh(family, "alone") for family in (*pairs, *MAZES)}
    assert [low > 0 for _, low, _ in alone.values()].count(True) == 2
    assert {family for family, (*_, high) in alone.items() if high < 0} == {
        "near",
        "far",
        "maze-skill",
    }
    assert "two kinds of two models earn more, three show no difference, and three lose" in said
    (told,) = re.findall(
        r"near and far notations, by (\.\d{3}) and (\.\d{3}), "
        r"and mazes of many turns with one skill each, by (\.\d{3})",
        said,
    )
    lost = [-alone[family][0] for family in ("near", "far", "maze-skill")]
    assert [*map(float, told)] == pytest.approx(lost, abs=0.00051)


ATTACKS = ("habit", "skip", "all-right", "bare", "half-worked", "shortcut", "copy", "trigger",
           "repeated", "all-wrong")  # fmt: skip


def forged():
    """The lines of scripts/forger.py by (setting, attack), each of five seeds."""
    lines, runs = (ROOT / "experiments" / "forger.jsonl").read_text().splitlines(), {}
    for line in map(json.loads, lines):
        runs.setdefault((line["setting"], line["attack"]), []).append(line)
    assert all(sorted(line["seed"] for line in its) == [*range(5)] for its in runs.values())
    return runs


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("plan", ["vertical", "horizontal"])
def test_a_forger_that_is_not_trusted_costs_no_more_than_one_that_is_away(plan, attack):
    runs = forged()
    for key in ("greedy", "sampled_late"):
        beside = mean(line[key] for line in runs[f"untrusted {plan}", attack])
        assert beside >= mean(line[key] for line in runs[f"absent {plan}", "none"]) - 0.005


# The demo

DEMO = (ROOT / "experiments" / "demo.md").read_text(encoding="utf-8")
DEMO_LINES = [
    json.loads(line) for line in (ROOT / "experiments" / "demo.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("model", ["adder", "subtractor"])
def test_a_row_has_the_means_and_differences_of_the_seeds(model):
    told = re.search(rf"^\| {model} \| (.*) \|$", DEMO, re.M)[1]
    found = numbers(told)
    rewards = [line["reward"] for line in DEMO_LINES if line["model"] == model]
    assert found[:3] == pytest.approx([mean(each) for each in zip(*rewards, strict=True)], abs=1e-3)
    for other, its in ((1, found[3:6]), (2, found[6:9])):
        interval = interval_of(reward[0] - reward[other] for reward in rewards)
        # The rows are rounded, and t stretches what they lose.
        lost = 0.0005 * (1 + t_quantile(0.975, interval.n - 1))
        assert its == pytest.approx(interval[:3], abs=lost)


def test_each_seed_has_what_the_page_says_it_has():
    assert "each of the five has more than .05 over half for both models" in " ".join(DEMO.split())
    assert [line["seed"] for line in DEMO_LINES] == [0, 1, 2, 3, 4] * 2
    assert all(line["reward"][0] - line["reward"][1] > 0.05 for line in DEMO_LINES)
    assert {tuple(line["written"]) for line in DEMO_LINES} == {(2880, 2880, 5760)}
    assert {"2,880", "5,760"} <= {*re.findall(r"\d,\d{3}", DEMO)}
