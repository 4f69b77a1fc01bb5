"""The numbers of README.md and docs/method.md, from the committed cells, in plain loops."""

import json
import re
from pathlib import Path
from statistics import mean, stdev

import pytest

ROOT = Path(__file__).parents[2]
T_OF_7 = 2.3646  # 95 %, eight base pairs
SETTINGS = {
    "LWS": "lws",
    "F-TIS": "f-tis",
    "alone with *half* the generation (what each writes with LWS)": "half",
    "alone with *all* of it": "alone",
    "alone with all of it": "alone",
    "alone with all of it and its own right answers counted twice": "alone-emphasised",
    "half": "half",
    "half, its own right answers counted twice": "half-emphasised",
    "own part only": "own-part",
    "without P": "successes",
    "claims": "claims",
    "c = 2": "lws-steep",
    "c = 8": "lws-8",
    "a quarter": "quarter",
}


def cells(family):
    files = sorted((ROOT / "experiments" / "cells" / "drawn").glob(f"{family}.*.json"))
    return [json.loads(file.read_text()) for file in files]


def interval(family, setting, than, measure):
    """Mean over base pairs of the mean over their models and seeds, and its 95 % interval."""
    values = {}
    for cell in cells(family):
        for model, node in cell["node"].items():
            half = len(node["sampled"]) // 2
            late = sum(node["sampled"][half:]) / (len(node["sampled"]) - half)
            value = late if measure == "late" else node["greedy"][-1]
            values[cell["setting"], model, cell["seed"]] = value
    pairs = {}
    for (its, model, seed), value in values.items():
        if its == setting:
            pairs.setdefault(model.split("-")[1], []).append(value - values[than, model, seed])
    means = [mean(differences) for differences in pairs.values()]
    assert len(means) == 8
    half = T_OF_7 * stdev(means) / 8**0.5
    return mean(means), mean(means) - half, mean(means) + half


def numbers(text):
    return [float(number) for number in re.findall(r"[+-]?\.\d{3}", text)]


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


def rows_of(page):
    """Rows "this - that" of the tables, each with the family that the head of its table names."""
    family, inside = "", False
    for line in (ROOT / page).read_text().splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")]
        if line[:1] == "|" and not inside:
            family = family_of(row[0])
        inside = line[:1] == "|"
        if family and re.match(r"\|[^|]+ - [^|]+\| [+-]?\.\d{3} \[", line):
            yield family, *row


ROWS = list(rows_of("docs/method.md"))
ROW = re.compile(r"^\| (.*?) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def test_there_are_numbers_to_look_at():
    counts = {family: sum(row[0] == family for row in ROWS) for family in FAMILIES.values()}
    assert counts == {"size": 10, "complementary": 10, "lora": 4, "far": 3, "four": 4, "near": 6}


def test_what_a_steeper_weight_gives_is_that_of_the_cells():
    page = (ROOT / "docs" / "method.md").read_text()
    table = page.split("| c = 8 | sampled reward, second half |")[1].split("\n\n")[0]
    found = re.findall(r"^\| (.*?): c = 8 - (.*?) \| (.*?) \|$", table, re.MULTILINE)
    assert {family_of(kind) for kind, _, _ in found} == set(FAMILIES.values())
    for kind, than, told in found:
        expected = interval(family_of(kind), "lws-8", SETTINGS[than], "late")
        assert numbers(told) == pytest.approx(expected, abs=0.00051)


def test_the_readmes_table_is_that_of_the_cells():
    page = (ROOT / "README.md").read_text()
    head = "| the models are | LWS - half | LWS - alone | LWS - F-TIS | LWS, c = 8 - half |"
    seen = set()
    for kind, *told in ROW.findall(page[page.index(head) + len(head) :])[:7]:
        if not (family := family_of(kind)):
            continue
        seen.add(family)
        same = "quarter" if family == "four" else "half"
        sides = ("lws", same), ("lws", "alone"), ("lws", "f-tis"), ("lws-8", same)
        for text, (setting, than) in zip(told, sides, strict=True):
            if (family, than) == ("four", "alone"):
                assert not text  # not run
            else:
                expected = interval(family, setting, than, "late")
                assert numbers(text) == pytest.approx(expected, abs=0.00051)
    assert seen == set(FAMILIES.values())


@pytest.mark.parametrize("family, what, late, greedy", ROWS, ids=lambda text: text[:40])
def test_a_difference_is_that_of_the_cells(family, what, late, greedy):
    setting, than = (SETTINGS[name] for name in what.split(" - "))
    for text, measure in ((late, "late"), (greedy, "greedy")):
        expected = interval(family, setting, than, measure)
        assert numbers(text) == pytest.approx(expected, abs=0.00051)


def test_the_core_time_of_a_pair_is_that_of_the_cells():
    spent = {"lws": 0.0, "alone": 0.0, "f-tis": 0.0}
    for cell in cells("size"):
        if cell["setting"] in spent:
            spent[cell["setting"]] += cell["cpu_s"]
    text = (ROOT / "README.md").read_text()
    (told,) = re.findall(r"the pair took\s+(\.\d\d) of the core time", text)
    assert float(told) == pytest.approx(spent["lws"] / spent["alone"], abs=0.0051)


def test_the_forgers_table_is_that_of_its_runs():
    """scripts/forger.py prints it; here it is put together once more."""
    lines = (ROOT / "experiments" / "forger.jsonl").read_text().splitlines()
    runs = {}
    for line in map(json.loads, lines):
        runs.setdefault((line["attack"], line["setting"]), []).append(line["greedy"])
    told = {}
    for line in (ROOT / "docs" / "method.md").read_text().splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")]
        if len(row) == 5 and row[0] in {setting for _, setting in runs}:
            for attack, cell in zip(("habit", "skip", "all-right", "none"), row[1:], strict=True):
                if cell != "-":
                    told[attack, row[0]] = float(cell)
    assert told == pytest.approx({key: mean(its) for key, its in runs.items()}, abs=0.0051)
    assert all(len(its) == 5 for its in runs.values())
