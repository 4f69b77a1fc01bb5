"""Every number of docs/results.md and of the experiments' pages, from the cells in plain loops; and
those of README.md, docs/partners.md and demo.md."""

import json
import re
import tomllib
from pathlib import Path
from statistics import mean

import pytest

import oracle
from potluck_experiments.statistics import interval_of, t_quantile

pytestmark = pytest.mark.page

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
NAMES = "tiny", "drawn", "words", "real", "paper"
SCALES = {name: oracle.written_out(tomllib.loads((EXPERIMENTS / f"{name}.toml").read_text()))
          for name in NAMES}  # fmt: skip
EVERY = [
    json.loads(line)
    for path in sorted(EXPERIMENTS.glob("cells/*/*.jsonl"))
    for line in path.read_text().splitlines()
]
CELLS = {
    (cell["scale"], cell["family"], tuple(cell["models"]), cell["setting"], cell["seed"]): cell
    for cell in EVERY
}
SETTINGS = tomllib.loads((EXPERIMENTS / "settings.toml").read_text())
ALONE = {name for name, its in SETTINGS.items() if its.get("alone")}


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
    seeds = range(SCALES[scale].get("seeds", 5))
    nodes = {seed: node_of(scale, pair, model, setting, seed) for seed in seeds}
    return {seed: oracle.value(node, measure, when) for seed, node in nodes.items() if node}


def differences(scale, pair, setting, than, measure, when, who="each"):
    """Lists by seed, one for each model that it is about; without those that have no room."""
    family, _, name = pair.partition(".")
    models = SCALES[scale]["family"][family]["pair"][name]
    base = {m: by_seed(scale, pair, m, than, measure, when) for m in models}
    other = {m: by_seed(scale, pair, m, setting, measure, when) for m in models}
    change = {m: [other[m][s] - base[m][s] for s in base[m] if s in other[m]] for m in models}
    if who == "second minus first":
        return [[b - a for a, b in zip(change[models[0]], change[models[1]], strict=True)]]
    about = {
        "each": models,
        "first": models[:1],
        "second": models[1:2],
        "third": models[2:3],
        "fourth": models[3:4],
        "weaker": lambda: [min(models, key=lambda m: mean(base[m].values()))],
        "stronger": lambda: [max(reversed(models), key=lambda m: mean(base[m].values()))],
    }
    about = about[who]() if who in ("weaker", "stronger") else about[who]
    if measure == "out-of-distribution":
        about = [m for m in about if 0.1 <= mean(base[m].values()) <= 0.8]
    return [change[m] for m in about]


def over_units(scale, pairs, *what):
    if SCALES[scale].get("unit") == "base pair":
        every = [differences(scale, pair, *what) for pair in pairs]
        return oracle.interval([mean(mean(model) for model in its) for its in every if its])
    every = [model for pair in pairs for model in differences(scale, pair, *what)]
    return oracle.interval([mean(its) for its in zip(*every, strict=True)])


def numbers(text):
    return [float(number) for number in re.findall(r"[+-]?\d*\.\d{3}", text)]


def rows(text):
    return [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()
            if line.startswith("|")]  # fmt: skip


def claims():
    for folder in sorted(EXPERIMENTS.glob("*/expected.toml")):
        about = tomllib.loads(folder.with_name("experiment.toml").read_text())
        page = folder.with_name("RESULTS.md").read_text()
        for claim in tomllib.loads(folder.read_text())["claim"]:
            for scale, pairs in about["pairs"].items():
                kinds = claim.get("kinds", ())
                pairs = [p for p in pairs if not kinds or p.partition(".")[0] in kinds]
                if f"## Scale: {scale}\n\nNot run yet." not in page:
                    yield pytest.param(
                        folder.parent, claim, scale, pairs, id=f"{folder.parent.name}-{claim['id']}"
                    )


@pytest.mark.parametrize("folder, claim, scale, pairs", list(claims()))
def test_a_page_of_an_experiment_tells_each_claim(folder, claim, scale, pairs):
    page = (folder / "RESULTS.md").read_text()
    section = page.split(f"### {claim['text'].rstrip('.')}\n")[1].split("\n### ")[0]
    titles = {its["title"]: name for name, its in SCALES[scale]["family"].items()}
    told = [row for row in rows(section) if row[0] == "all" or row[0] in titles]
    assert told
    for row in told:
        inside = [p for p in pairs if row[0] == "all" or p.startswith(f"{titles[row[0]]}.")]
        what = claim["setting"], claim["than"], claim["measure"], claim["when"], claim["node"]
        if row[1] == "-":  # cells are missing
            assert row[4].strip("*") == OPEN
            assert any(not its for pair in inside for its in differences(scale, pair, *what)), row
            continue
        low_high = over_units(scale, inside, *what)
        assert numbers(row[1]) == pytest.approx(low_high, abs=0.00051)
        assert row[4].strip("*") == verdict(claim, low_high, int(row[2])), row


def verdict(claim, low_high, n):
    middle, low, high = low_high
    half = (high - low) / 2 * oracle.T_95[n - 1] / oracle.T_975[n - 1]
    margin, lies = claim.get("margin", 0.0), claim["lies"]
    if lies == "above":
        full = (claim["measure"], claim["id"]) == ("greedy", "large-late")  # begins above .95
        return "shown" if low > margin else "refuted" if high <= margin and not full else OPEN
    if lies == "below":
        return "shown" if high < -margin else "refuted" if low >= -margin else OPEN
    if lies == "not below":
        return "shown" if middle - half >= -margin else "refuted" if high < -margin else OPEN
    inside = middle - half >= -margin and middle + half <= margin
    return "shown" if inside else "refuted" if low > margin or high < -margin else OPEN


OPEN = "inconclusive"


KINDS = {
    scale: {its["title"]: name for name, its in file["family"].items()}
    for scale, file in SCALES.items()
}
OF_BASE_PAIRS = [scale for scale, file in SCALES.items() if file.get("unit") == "base pair"]
DEFAULT, BEFORE, OLDER = "lws-typicality", "lws-likelihood", "lws"
CONTROLS = ("own-part", "alone", "f-tis", BEFORE)


class Kind:
    """The cells of a family, and the models of those of its pairs that have these settings."""

    def __init__(self, scale, family, *settings, without=""):
        table, self.family = SCALES[scale]["family"][family]["pair"], family
        self.cells = [c for c in EVERY if (c["scale"], c["family"]) == (scale, family)]
        self.seeds = SCALES[scale]["seeds"]
        usual = len(next(iter(table.values())))
        self.halves = ("quarter", "quarter-smaller") if usual == 4 else ("half", "half-smaller")
        self.pairs = [
            models
            for models in table.values()
            if len(models) == usual
            and all(self.has(models, each) for each in settings or (DEFAULT, *self.halves))
            and not any(oracle.nodes_of(self.cells, family, m, without) for m in models)
        ]
        roles = [model.rpartition("-")[0] for model in table[next(iter(table))]]
        self.roles, self.told = roles, ["", *(roles if usual == 4 else ())]

    def has(self, models, setting):
        return oracle.is_finished(self.cells, self.family, models, setting)

    def count(self):
        """Pairs, and their runs with the default where seeds are missing."""
        runs = [len(oracle.nodes_of(self.cells, self.family, models[0], DEFAULT))
                for models in self.pairs]  # fmt: skip
        whole = sum(runs) == len(runs) * self.seeds
        return str(len(runs)) if whole else f"{len(runs)} ({sum(runs)} runs)"

    def level(self, setting, role):
        pairs = [models for models in self.pairs if self.has(models, setting)]
        return oracle.level(self.cells, self.family, pairs, setting, role)

    def better(self, role=""):
        return oracle.better_half(self.cells, self.family, self.pairs, self.halves, role)

    def minus(self, setting, than, **what):
        of = self.cells, self.family, self.pairs
        return oracle.differences(*of, setting, than, **what)

    def mean_of(self, setting, field):
        means = []
        for models in self.pairs if setting else ():
            for node in oracle.nodes_of_pair(self.cells, self.family, models, setting):
                is_one = field in ("others_k1", "others_likelihood")
                values = [node.get(field)] if is_one else node.get(field) or [0.0]
                known = [value for value in values if value is not None]
                means += [sum(known) / len(known)] if known else []
        return sum(means) / len(means) if means else None


def newest(scale):
    kinds = [Kind(scale, family) for family in SCALES[scale]["family"]]
    return [kind for kind in kinds if kind.pairs]


def table(scale, heading, *head):
    """Rows of the table that begins with these columns, below a heading of docs/results.md."""
    page = (ROOT / "docs" / "results.md").read_text()
    title = heading if scale == "drawn" else f"{heading}, scale {scale}"
    below = page.partition(f"\n## {title}\n")[2].split("\n## ")[0]
    found = [block for block in below.split("\n\n") if rows(block)[:1] and
             rows(block)[0][: len(head)] == list(head)]  # fmt: skip
    return rows(found[0])[2:] if found else []


def tells(told, values):
    """Whether a cell of a table tells this mean and interval; one value has no interval."""
    if len(values) < 2:
        return told == "-"
    return numbers(told) == pytest.approx(oracle.interval(values), abs=0.00051)


def tells_one(told, value):
    return told == "-" if value is None else numbers(told) == pytest.approx([value], abs=0.00051)


@pytest.mark.parametrize("scale", OF_BASE_PAIRS)
def test_the_default_and_its_controls_are_those_of_the_cells(scale):
    lines = [(kind, role) for kind in newest(scale) for role in kind.told]
    levels = table(scale, "Findings", "kind", "pairs")
    for row, kind in zip(levels, newest(scale), strict=True):
        assert (KINDS[scale][row[0]], row[1]) == (kind.family, kind.count())
        for told, setting in zip(row[2:], (*kind.halves, *CONTROLS, DEFAULT), strict=True):
            assert tells_one(told, kind.level(setting, "")), (row, setting)
            assert told.startswith("**") == (setting == kind.better())
    differences = table(scale, "Findings", "kind", "the better half")
    for row, (kind, role) in zip(differences, lines, strict=True):
        for told, than in zip(row[1:], (kind.better(role), *CONTROLS), strict=True):
            assert tells(told, kind.minus(DEFAULT, than, role=role)), (row, than)


@pytest.mark.parametrize("scale", OF_BASE_PAIRS)
def test_other_measures_and_what_is_taken_are_those_of_the_cells(scale):
    found = table(scale, "Findings", "kind", "greedy")
    for row, kind in zip(found, newest(scale), strict=True):
        measures = "greedy", "pass@8", "out-of-distribution"
        for told, measure in zip(row[1:4], measures, strict=True):
            is_measured = measure != "pass@8" or scale != "words"
            what = kind.minus(DEFAULT, kind.better(), measure=measure) if is_measured else []
            assert tells(told, what), (row, measure)
        taken = [kind.mean_of(setting, "others_taken") for setting in (BEFORE, DEFAULT)]
        taken.append(kind.mean_of(DEFAULT, "others_silenced"))
        assert all(map(tells_one, row[4:], taken)), row


@pytest.mark.parametrize("scale", OF_BASE_PAIRS)
def test_the_core_time_over_that_of_the_default_before_is_that_of_the_cells(scale):
    kinds = {kind.family: kind for kind in newest(scale)}
    for row in table(scale, "What it costs", "kind", "core time") if kinds else []:
        kind, ratios = kinds[KINDS[scale][row[0]]], []
        for models in kind.pairs:
            spent = {
                setting: mean(c["cpu_s"] for c in kind.cells
                              if (c["setting"], c["models"]) == (setting, models))
                for setting in (DEFAULT, BEFORE) if kind.has(models, setting)
            }  # fmt: skip
            ratios += [(spent[DEFAULT], spent[BEFORE])] if len(spent) == 2 else []
        if len(ratios) < 2:
            assert row[4] == "-"
        else:
            told = [float(number) for number in re.findall(r"\d+\.\d\d", row[4])]
            assert told == pytest.approx(oracle.geometric(ratios), abs=0.0101)


def test_the_table_of_older_pairs_is_that_of_the_cells():
    found = {row[0]: row[1:] for row in table("drawn", "Findings", "difference")}
    kinds = [Kind("drawn", family, OLDER, without=DEFAULT) for family in SCALES["drawn"]["family"]]
    kinds = [kind for kind in kinds if kind.pairs]
    assert sum(len(kind.pairs) for kind in kinds) == 6 * 8
    assert {"LWS - half", "LWS - alone", "LWS - own part", "F-TIS - half"} < {*found}
    names = {
        "LWS": OLDER, "F-TIS": "f-tis", "LWS, c = 8": "lws-8", "half": "half", "alone": "alone",
        "smaller groups": "half-smaller", "half, x2": "half-emphasised", "own part": "own-part",
        "alone, x2": "alone-emphasised",
    }  # fmt: skip
    for row, cells in found.items():
        for told, kind in zip(cells, kinds, strict=True):
            if row in ("k1", "P"):
                field = {"k1": ("f-tis", "others_k1"), "P": (OLDER, "others_likelihood")}[row]
                assert tells_one(told, kind.mean_of(*field))
                continue
            what, than = (names[name] for name in row.split(" - "))
            if len(kind.roles) == 4:
                than = than.replace("half", "quarter")
            assert tells(told, kind.minus(what, than)), (row, kind.family)


# Pages that people wrote

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
    for cell in EVERY:
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
