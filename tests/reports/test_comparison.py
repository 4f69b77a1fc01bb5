"""Two lists of runs, compared: against plain loops and numbers by hand, and what is refused."""

import json
import random
from dataclasses import replace

import pytest

import potluck
from potluck.reports.runs import RunReadError

ROUNDS = 6
T_975 = {1: 12.706, 2: 4.303, 3: 3.182}
"""From a printed table."""


def make(place, seed, chance, *, nodes=("small", "large"), rounds=ROUNDS, done=ROUNDS, digest="d"):
    """A run folder; ``chance``: of a right answer, by node. Returns its path."""
    folder = place / f"{seed}"
    folder.mkdir(parents=True)
    recipe = {"name": "made", "rounds": rounds, "seed": seed}
    (folder / "recipe.json").write_text(
        json.dumps({**recipe, "node": {name: {"model": "m"} for name in nodes}})
    )
    (folder / "task.json").write_text(json.dumps({"digest": digest}))
    for name in nodes:
        dice, own = random.Random(f"{place.name} {seed} {name}"), folder / name
        own.mkdir()
        written = [
            {"round": r, "problem": f"{seed} {r} {p}", "author": name, "index": i, "text": "",
             "reward": float(dice.random() < chance)}
            for r in range(done) for p in range(5) for i in range(4)
        ]  # fmt: skip
        of_none = {"author": "other"}, {"round": rounds}  # another's, and one beyond the end
        written += [{**written[0], **which, "reward": 9.0} for which in of_none]
        graded = [{"round": ROUNDS, "validation": chance / 2}]
        for file, lines in (
            ("completions", written),
            ("metrics", [{"round": r} for r in range(done)]),
            ("evaluation", graded),
        ):
            (own / f"{file}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return folder


def own_reward(folder, node):
    """Mean over the problems of the second half, all of which have four completions."""
    lines = [json.loads(x) for x in (folder / node / "completions.jsonl").read_text().splitlines()]
    late = [x["reward"] for x in lines if x["reward"] < 9 and x["round"] >= ROUNDS // 2]
    return sum(late) / len(late)


@pytest.fixture
def runs(tmp_path):
    """Three runs for each side, of the seeds 0 to 2 and 2 to 0."""
    return (
        [make(tmp_path / "a", seed, 0.7) for seed in (0, 1, 2)],
        [make(tmp_path / "b", seed, 0.4) for seed in (2, 1, 0)],
    )


def test_seeds_are_paired_and_their_interval_is_students(runs):
    a, b = runs
    found = potluck.compare(a, b)
    by_seed = {int(folder.name): folder for folder in b}
    rows = {(row.node, row.measure): row for row in found.rows}
    for nodes, name in ((["small"], "small"), (["small", "large"], "mean of nodes")):
        ours, theirs = (
            [sum(own_reward(side[seed], n) for n in nodes) / len(nodes) for seed in (0, 1, 2)]
            for side in ({0: a[0], 1: a[1], 2: a[2]}, by_seed)
        )
        gaps = [x - y for x, y in zip(ours, theirs, strict=True)]
        middle = sum(gaps) / 3
        s = (sum((gap - middle) ** 2 for gap in gaps) / 2) ** 0.5
        half = T_975[2] * s / 3**0.5
        row = rows[name, "own reward"]
        assert (row.a, row.b) == pytest.approx((sum(ours) / 3, sum(theirs) / 3))
        interval = row.difference.value, row.difference.low, row.difference.high
        assert interval == pytest.approx((middle, middle - half, middle + half), abs=1e-4)
    assert found.over == "3 pairs of seeds"
    assert found.main == rows["mean of nodes", "own reward"]
    greedy = rows["large", "greedy"]
    assert (greedy.a, greedy.b) == pytest.approx((0.35, 0.2))
    assert (greedy.difference.low, greedy.difference.high) == pytest.approx((0.15, 0.15))
    assert rows["small", "written"].cells[2:] == ("120", "120", "")
    assert found.verdict.startswith("A is better: own reward .")
    assert potluck.compare(b, a).verdict.startswith("B is better: ")


def test_one_seed_has_an_interval_over_its_problems(runs):
    a, b = runs[0][0], runs[1][2]
    (b / "task.json").write_text("{")  # damaged: not known to be another
    found = potluck.compare(a, str(b))
    assert found.over == "15 problems, one seed"
    assert found.over in found.verdict
    row = found.rows[0]
    assert row.difference.value == pytest.approx(own_reward(a, "small") - own_reward(b, "small"))
    assert row.difference.low < row.difference.value < row.difference.high
    assert next(row for row in found.rows if row.measure == "greedy").difference is None
    # Only the pair of equal seeds counts.
    more = potluck.compare([a, runs[0][1]], b)
    assert more.rows == found.rows
    assert more.note.endswith(f"one seed; left out, of a seed on one side: {runs[0][1]}")
    other = potluck.compare(a, runs[1][1])  # another seed, so other problems
    assert other.over == "15 problems, seeds 0 and 1"
    assert other.rows[0].difference.value == pytest.approx(
        own_reward(a, "small") - own_reward(runs[1][1], "small")
    )
    for file in runs[1][1].glob("*/completions.jsonl"):  # one of 15 in common is too few to pair
        file.write_text(file.read_text().replace('"1 5 0"', '"0 5 0"'))
    assert potluck.compare(a, runs[1][1]).over == other.over


def test_it_is_shown_as_markdown_html_and_a_picture(runs):
    found = potluck.compare(*runs)
    said = found.markdown()
    assert f"| small | own reward | {found.rows[0].cells[2]} |" in said
    assert found.verdict in said
    assert f"A: {runs[0][0]} and 2 more; B: " in said
    assert found._repr_markdown_() == said
    made = found.plot()
    assert made._repr_png_().startswith(b"\x89PNG")
    assert [each.get_text() for each in made.axes[0].get_yticklabels()] == [
        "small", "large", "mean of nodes",
    ]  # fmt: skip
    low, high = made.axes[0].lines[1].get_xdata()
    assert (low, high) == (found.rows[0].difference.low, found.rows[0].difference.high)


def test_a_path_is_text_in_every_page(tmp_path):
    a, b = (make(tmp_path / f"{side}<i>", 0, 0.5) for side in "ab")
    found = potluck.compare(a, b)
    assert "a&lt;i&gt;" in found.markdown()
    named = replace(found.rows[0], node="a|b")
    assert r"| a\|b |" in replace(found, rows=(named, *found.rows[1:])).markdown()


@pytest.mark.parametrize(
    "sides, complaint",
    [
        (({"seed": 0, "done": 4}, {}), r"small has done 4 of 6 rounds; go on with: potluck run "),
        (({}, {"digest": "e"}), r"task of digest d and .* one of e: rewards of different tasks"),
        (({}, {"nodes": ("third",)}), r"has the nodes small, large and .* has third; compare runs"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(tmp_path, sides, complaint):
    a, b = (
        make(tmp_path / name, **{"seed": 0, "chance": 0.5, **options})
        for name, options in zip("ab", sides, strict=True)
    )
    with pytest.raises(RunReadError, match=complaint) as refused:
        potluck.compare(a, b)
    assert "\n" not in str(refused.value)


def test_seeds_that_meet_nobody_or_twice_are_refused(runs, tmp_path):
    (a, *_), (_, one, two) = runs
    with pytest.raises(RunReadError, match=r"A has runs of the seeds 0, B of 1, 2.*, and none"):
        potluck.compare(a, [one, make(tmp_path / "c", 2, 0.5)])
    with pytest.raises(RunReadError, match="B has two runs of seed 0"):
        potluck.compare(a, [two, make(tmp_path / "c", 0, 0.5)])


def test_nodes_that_wrote_nothing_cannot_be_compared(runs):
    for name in ("small", "large"):
        (runs[0][0] / name / "completions.jsonl").write_text("")
    with pytest.raises(RunReadError, match="no node has completions of its own in all runs"):
        potluck.compare(runs[0][0], runs[1][2])


@pytest.mark.parametrize("stop_when, at_end", [({"rounds": 3}, None), ({"no_better": 1}, True)])
def test_a_run_that_stop_when_ended_is_finished(tmp_path, stop_when, at_end):
    a, b = (make(tmp_path / side, 0, 0.5, done=3) for side in "ab")
    for run in (a, b):
        tree = json.loads((run / "recipe.json").read_text())
        (run / "recipe.json").write_text(json.dumps({**tree, "stop_when": stop_when}))
        for node in ("small", "large"):
            graded = {"round": 3, "validation": 0.5, "at_end": at_end}
            (run / node / "evaluation.jsonl").write_text(json.dumps(graded))
    found = potluck.compare(a, b)
    assert found.over == "10 problems, one seed"  # of the rounds 1 and 2
    assert "greedy" in {row.measure for row in found.rows}


def test_a_node_that_only_writes_or_is_elsewhere_is_no_row(runs):
    for folder in (runs[0][0], runs[1][2]):
        tree = json.loads((folder / "recipe.json").read_text())
        tree["node"] |= {"gpt": {"model": ""}, "far": {"model": "m"}}
        (folder / "recipe.json").write_text(json.dumps(tree))
    found = potluck.compare(runs[0][0], runs[1][2])
    assert {row.node for row in found.rows} == {"small", "large", "mean of nodes"}
