"""The numbers of README.md, partners.md and the notes on trust, from committed cells and runs."""

import json
import re
from pathlib import Path
from statistics import mean

import pytest

import oracle
from potluck_experiments.statistics import interval_of, t_quantile
from test_numbers import DEFAULT, FILES, Kind

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


PLANTED = {
    "habit": "habit",
    "skip": "skips",
    "all-right": "habit",
    "bare": "skips",
    "half-worked": "one_step",
    "shortcut": "shortcuts",
}


def forged():
    """The lines of scripts/forger.py by (setting, attack), each of five seeds."""
    lines, runs = (ROOT / "experiments" / "forger.jsonl").read_text().splitlines(), {}
    for line in map(json.loads, lines):
        runs.setdefault((line["setting"], line["attack"]), []).append(line)
    assert all(sorted(line["seed"] for line in its) == [*range(5)] for its in runs.values())
    return runs


def tables_of_trust():
    """The tables of its notes by their first head: {(row, column): cell}."""
    tables, head = {}, None
    for line in (ROOT / "experiments/ours10_trust/notes.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = cells
        elif not set(line) <= set("|-"):
            rows = tables.setdefault(head[0], {})
            rows.update({(cells[0], name): x for name, x in zip(head[1:], cells[1:], strict=True)})
    return tables


@pytest.mark.parametrize("table, key", [("greedy", "greedy"), ("sampled", "sampled_late")])
def test_the_forgers_tables_are_those_of_its_runs(table, key):
    runs, told = forged(), tables_of_trust()[table]
    names = {"none": "no forger"}
    expected = {(s, names.get(a, a)): mean(x[key] for x in its) for (s, a), its in runs.items()}
    assert {k: float(v) for k, v in told.items() if v != "-"} == pytest.approx(expected, abs=0.0051)


def test_what_is_planted_is_that_of_the_runs_and_little_where_nobody_is_trusted():
    runs, told = forged(), tables_of_trust()["planted"]
    for (setting, attack), cell in told.items():
        its = runs.get((setting, "none" if setting.startswith("absent") else attack))
        if cell == "-":
            assert its is None
            continue
        share = mean(line[PLANTED[attack]] for line in its)
        assert float(cell) == pytest.approx(share, abs=0.0051)
        if setting in ("untrusted vertical", "untrusted horizontal"):
            natural = runs[setting.replace("untrusted", "absent"), "none"]
            assert share <= mean(line[PLANTED[attack]] for line in natural) + 0.02


@pytest.mark.parametrize("attack", [*PLANTED, "copy", "trigger", "repeated", "all-wrong"])
@pytest.mark.parametrize("plan", ["vertical", "horizontal"])
def test_a_forger_that_is_not_trusted_costs_no_more_than_one_that_is_away(plan, attack):
    runs = forged()
    for key in ("greedy", "sampled_late"):
        beside = mean(line[key] for line in runs[f"untrusted {plan}", attack])
        assert beside >= mean(line[key] for line in runs[f"absent {plan}", "none"]) - 0.005


def test_what_a_liar_plants_beside_the_habit_test_is_that_of_its_runs():
    """scripts/liar.py: planted in the last five rounds, and sampled reward in brackets."""
    lines = (ROOT / "experiments" / "liar.jsonl").read_text().splitlines()
    runs = {(x["setting"], x["attack"]): x for x in map(json.loads, lines) if x["base"] == 90}
    heads = {"everybody": "trusted", "nobody": "not trusted"}
    told = tables_of_trust()["liar"]
    assert len(told) == 4 * len({attack for _, attack in runs} - {"none", "none of three"})
    for (attack, column), cell in told.items():
        name, whom = column.split(", ")
        setting = name, next(key for key, head in heads.items() if head == whom)
        if cell == "-":
            assert (" ".join(setting), attack) not in runs
            continue
        run = runs[" ".join(setting), attack]
        planted, sampled = map(float, cell.rstrip(")").split(" ("))
        assert planted == pytest.approx(run["planted_by_fives"][-1], abs=0.0051)
        assert sampled == pytest.approx(run["sampled_late"], abs=0.0051)


# The demo

DEMO = (ROOT / "experiments" / "demo.md").read_text(encoding="utf-8")
SHARE_OF_REWARD = r"[+-]?\d?\.\d{3}"
DEMO_LINES = (ROOT / "experiments" / "demo.jsonl").read_text(encoding="utf-8").splitlines()
DEMO_ROWS: dict = {}
for line in map(json.loads, DEMO_LINES):
    DEMO_ROWS.setdefault(line["model"], []).append(line)


@pytest.mark.parametrize("model", ["adder", "subtractor"])
def test_a_row_has_the_means_and_differences_of_the_seeds(model):
    told = re.search(rf"^\| {model} \| (.*) \|$", DEMO, re.M)[1]
    numbers = list(map(float, re.findall(SHARE_OF_REWARD, told)))
    rewards = [line["reward"] for line in DEMO_ROWS[model]]
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
    assert "each of the five has more than .05 over half for both models" in " ".join(DEMO.split())
    for its in DEMO_ROWS.values():
        assert [line["seed"] for line in its] == [0, 1, 2, 3, 4]
        assert all(line["reward"][0] - line["reward"][1] > 0.05 for line in its)
        assert {tuple(line["written"]) for line in its} == {(2880, 2880, 5760)}
    assert "2,880" in DEMO
    assert "5,760" in DEMO
