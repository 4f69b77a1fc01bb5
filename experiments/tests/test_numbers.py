"""Every number of docs/results.md and of the experiments' pages, from the cells in plain loops."""

import json
import re
import tomllib
from pathlib import Path
from statistics import mean, stdev

import pytest

pytestmark = pytest.mark.page

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
T_975 = {2: 12.7062, 3: 4.3027, 4: 3.1824, 5: 2.7764, 6: 2.5706, 7: 2.4469, 8: 2.3646}
"""By the number of values."""
SCALES = {name: tomllib.loads((EXPERIMENTS / f"{name}.toml").read_text()) for name in
          ("tiny", "drawn", "paper")}  # fmt: skip
FILES = {path: json.loads(path.read_text()) for path in EXPERIMENTS.glob("cells/*/*.json")}
CELLS = {
    (cell["scale"], cell["family"], tuple(cell["models"]), cell["setting"], cell["seed"]): cell
    for cell in FILES.values()
}
SETTINGS = tomllib.loads((EXPERIMENTS / "settings.toml").read_text())
ALONE = {name for name, its in SETTINGS.items() if its.get("alone")}


def value(node, measure, when):
    rounds, sampled = len(node["sampled"]), node["sampled"]
    if measure == "sampled":
        part = {"early": sampled[: rounds // 2], "late": sampled[rounds // 2 :],
                "end": sampled[-max(3, -(-rounds // 10)) :]}[when]  # fmt: skip
        return sum(part) / len(part)
    if measure != "greedy":
        return node["pass_at_8" if measure == "pass@8" else "out_of_distribution"]
    if when == "end":
        return node["greedy"][-1]
    early = [g for at, g in zip(node["eval_rounds"], node["greedy"], strict=True)
             if 0 < at <= rounds / 2]  # fmt: skip
    return sum(early) / len(early)


def node_of(scale, pair, model, setting, seed):
    family, _, name = pair.partition(".")
    table = SCALES[scale]["family"][family]
    models = tuple(table["pair"][name])
    if setting in ALONE:
        same = [other for other, its in table["model"].items() if its == table["model"][model]]
        model = same[0]
        models = (model,)
    for places in SETTINGS[setting].get("together", []):
        if model in (beside := tuple(table["pair"][name][at] for at in places)):
            models = beside
    cell = CELLS.get((scale, family, models, setting, seed))
    return cell and cell["node"][model]


def by_seed(scale, pair, model, setting, measure, when):
    nodes = [node_of(scale, pair, model, setting, s) for s in range(SCALES[scale].get("seeds", 5))]
    return [value(node, measure, when) for node in nodes if node]


def differences(scale, pair, setting, than, measure, when, who="each"):
    """Lists by seed, one for each model that it is about; without those that have no room."""
    family, _, name = pair.partition(".")
    models = SCALES[scale]["family"][family]["pair"][name]
    base = {m: by_seed(scale, pair, m, than, measure, when) for m in models}
    other = {m: by_seed(scale, pair, m, setting, measure, when) for m in models}
    change = {m: [a - b for a, b in zip(other[m], base[m], strict=True)] for m in models}
    if who == "second minus first":
        return [[b - a for a, b in zip(change[models[0]], change[models[1]], strict=True)]]
    about = {
        "each": models,
        "first": models[:1],
        "second": models[1:2],
        "weaker": [min(models, key=lambda m: mean(base[m]))],
        "stronger": [max(reversed(models), key=lambda m: mean(base[m]))],
    }[who]
    if measure == "out-of-distribution":
        about = [m for m in about if 0.1 <= mean(base[m]) <= 0.8]
    return [change[m] for m in about]


def interval(values):
    half = T_975[len(values)] * stdev(values) / len(values) ** 0.5
    return mean(values), mean(values) - half, mean(values) + half


def over_units(scale, pairs, *what):
    if SCALES[scale].get("unit") == "base pair":
        every = [differences(scale, pair, *what) for pair in pairs]
        return interval([mean(mean(model) for model in its) for its in every if its])
    every = [model for pair in pairs for model in differences(scale, pair, *what)]
    return interval([mean(its) for its in zip(*every, strict=True)])


def numbers(text):
    return [float(number) for number in re.findall(r"[+-]?\d*\.\d{3}", text)]


def rows(text):
    return [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()
            if line.startswith("|")]  # fmt: skip


def claims():
    for folder in sorted(EXPERIMENTS.glob("*/expected.toml")):
        about = tomllib.loads(folder.with_name("experiment.toml").read_text())
        for claim in tomllib.loads(folder.read_text())["claim"]:
            for scale, pairs in about["pairs"].items():
                if any(cell["scale"] == scale for cell in FILES.values()):
                    yield pytest.param(
                        folder.parent, claim, scale, pairs, id=f"{folder.parent.name}-{claim['id']}"
                    )


@pytest.mark.parametrize("folder, claim, scale, pairs", list(claims()))
def test_a_page_of_an_experiment_tells_each_claims_interval_and_verdict(
    folder, claim, scale, pairs
):
    page = (folder / "RESULTS.md").read_text()
    section = page.split(f"### {claim['text'].rstrip('.')}\n")[1].split("\n### ")[0]
    titles = {its["title"]: name for name, its in SCALES[scale]["family"].items()}
    told = [row for row in rows(section) if row[0] == "all" or row[0] in titles]
    assert told
    for row in told:
        inside = [p for p in pairs if row[0] == "all" or p.startswith(f"{titles[row[0]]}.")]
        what = claim["setting"], claim["than"], claim["measure"], claim["when"], claim["node"]
        low_high = over_units(scale, inside, *what)
        assert numbers(row[1]) == pytest.approx(low_high, abs=0.00051)
        assert row[4].strip("*") == verdict(claim, low_high, int(row[2])), row


T_95 = {2: 6.3138, 3: 2.9200, 4: 2.3534, 5: 2.1318, 8: 1.8946}


def verdict(claim, low_high, n):
    middle, low, high = low_high
    half = (high - low) / 2 * T_95[n] / T_975[n]
    margin, lies = claim.get("margin", 0.0), claim["lies"]
    if lies == "above":
        full = claim["measure"] == "greedy" and claim["id"] in FULL
        return "shown" if low > margin else "refuted" if high <= margin and not full else OPEN
    if lies == "below":
        return "shown" if high < -margin else "refuted" if low >= -margin else OPEN
    if lies == "not below":
        return "shown" if middle - half >= -margin else "refuted" if high < -margin else OPEN
    inside = middle - half >= -margin and middle + half <= margin
    return "shown" if inside else "refuted" if low > margin or high < -margin else OPEN


OPEN = "inconclusive"
FULL = {"large-late"}
"""Claims that something rises above a greedy accuracy of more than .95."""


def tables():
    page = (ROOT / "docs" / "results.md").read_text()
    return {part.partition("\n")[0]: rows(part) for part in page.split("\n## ")[1:]}


SAME = {"four": "quarter"}
KINDS = {its["title"]: name for name, its in SCALES["drawn"]["family"].items()}


def pairs_of(name):
    return [f"{name}.{pair}" for pair in range(8)]


def test_the_findings_are_those_of_the_cells():
    page = (ROOT / "docs" / "results.md").read_text()
    said = page.split("## Findings")[1].split("\n## ")[0]
    lines = re.findall(r"^\d\. \*\*(.*?)\*\*.*?: (.*)$", said, re.MULTILINE)
    sides = [("lws", ""), ("lws", "alone"), ("lws", "f-tis"), ("f-tis", ""), ("f-tis", "alone"),
             ("lws-8", "")]  # fmt: skip
    assert len(lines) == len(sides)
    for (_, told), (setting, than) in zip(lines, sides, strict=True):
        parts = told.rstrip(".").split("; ")
        assert len(parts) >= 5
        for part in parts:
            (title,) = [title for title in KINDS if part.strip().startswith(title)]
            name = KINDS[title]
            what = setting, than or SAME.get(name, "half"), "sampled", "late"
            expected = over_units("drawn", pairs_of(name), *what)
            assert numbers(part) == pytest.approx(expected, abs=0.00051), part


def test_the_tables_of_kinds_are_those_of_the_cells():
    found = [row for row in tables()["Kinds of pair"] if len(row) == 6][2:]
    assert [KINDS[row[0]] for row in found] == list(SCALES["drawn"]["family"])
    for row in found:
        name = KINDS[row[0]]
        same = SAME.get(name, "half")
        thans = f"{same}-emphasised", "alone-emphasised", "own-part"
        for told, than in zip(row[3:], thans, strict=True):
            if told != "-":
                expected = over_units("drawn", pairs_of(name), "lws", than, "sampled", "late")
                assert numbers(told) == pytest.approx(expected, abs=0.00051), (row, than)
        for told, setting, field in (
            (row[1], "f-tis", "others_k1"), (row[2], "lws", "others_likelihood")
        ):  # fmt: skip
            its = [node[field] for cell in FILES.values() for node in cell["node"].values()
                   if (cell["family"], cell["setting"]) == (name, setting) and field in node
                   and len(cell["models"]) > 1]  # fmt: skip
            its = [each for each in its if each is not None]
            assert told == "-" or float(told) == pytest.approx(mean(its), abs=0.00051)


def test_the_table_of_other_measures_is_that_of_the_cells():
    name, seen = "", 0
    for row in tables()["Kinds of pair"]:
        if len(row) != 5 or row[1] not in ("greedy", "pass@8", "out of distribution"):
            continue
        name = KINDS.get(row[0], name)
        for told, than in zip(row[2:], (SAME.get(name, "half"), "alone", "f-tis"), strict=True):
            if told != "-":
                pairs = pairs_of(name)
                expected = over_units("drawn", pairs, "lws", than, row[1].replace(" ", "-"), "end")
                assert numbers(told) == pytest.approx(expected, abs=0.00051), (row, than)
                seen += 1
            else:  # nothing was run alone in the family of four
                assert (name, than) == ("four", "alone")
    assert seen == 6 * 3 * 3 - 3
