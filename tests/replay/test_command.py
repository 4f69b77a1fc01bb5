"""``potluck replay``: what it prints and leaves, and what stays when it is stopped."""

import json

import pytest
from rich.console import Console

import tiny
from potluck.config import from_tree
from potluck.launch.in_process import run
from potluck.replay import run as rehearsal
from potluck.replay.plan import ReplayRow, authors_table, differences_table, table
from potluck.types import NonFiniteError

NAMES = ("small", "twin")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    model = tiny.save(folder / "model")
    tree = {
        "name": "tiny",
        "rounds": 2,
        "problems_per_round": 2,
        "group_size": 4,
        "objective": {"method": "f-tis"},
        "threads": 1,
        "task": {"name": "digits", "reward": "hash"},
        "sampling": {"max_new_tokens": 6, "max_total_tokens": 32},
        "evaluation": {"problems": 2, "out_of_distribution": 0},
        "node": {name: {"model": model, "learning_rate": 1e-3} for name in NAMES},
    }
    run(from_tree(tree), folder / "run")
    return folder / "run"


def test_it_shows_a_table_and_leaves_every_line(recorded, potluck_says, tmp_path):
    out = tmp_path / "out"
    code, said, complaint = potluck_says("replay", recorded, "--method", "nois,tis", "--out", out)
    assert (code, complaint) == (0, "")
    assert ["small", "NoIS", "1-2"] in [row.split()[:3] for row in said.splitlines()]
    assert ["small", "TIS", "-", "NoIS", "2"] in [row.split()[:5] for row in said.splitlines()]
    assert str(out / "replay.jsonl") in said
    lines = [json.loads(line) for line in (out / "replay.jsonl").read_text().splitlines()]
    told = [(line["node"], line["method"], line["round"]) for line in lines]
    assert told == [(n, m, r) for n in NAMES for m in ("nois", "tis") for r in (0, 1)]
    assert [path.name for path in out.iterdir()] == ["replay.jsonl"]
    assert potluck_says("replay", recorded, "--out", out)[::2] == (
        2, f"potluck: {out} exists; --out names another folder, or remove it\n",
    )  # fmt: skip


def test_one_node_its_first_round_and_the_recipes_code_are_asked_for(
    recorded, potluck_says, tmp_path, monkeypatch
):
    true, trusted = rehearsal.make_task, []

    def make_task(config, *, trust_code, **grading):
        trusted.append(trust_code)
        return true(config, trust_code=trust_code, **grading)

    monkeypatch.setattr(rehearsal, "make_task", make_task)
    words = ["--method", "tis", "--node", "twin", "--rounds", "1", "--out", tmp_path / "out"]
    code, said, complaint = potluck_says("replay", recorded, *words, "--trust-code")
    assert (code, complaint, trusted) == (0, "", [True])
    assert "A - B" not in said
    lines = [json.loads(x) for x in (tmp_path / "out" / "replay.jsonl").read_text().splitlines()]
    assert [(line["node"], line["method"], line["round"]) for line in lines] == [("twin", "tis", 0)]


def test_where_every_method_breaks_down_it_is_said_and_the_exit_code_is_1(
    recorded, potluck_says, tmp_path, monkeypatch
):
    def breaks(*args):
        raise NonFiniteError("the weights are not finite")
        yield

    monkeypatch.setattr(rehearsal, "replay_node", breaks)
    words = ["--method", "nois,tis", "--node", "small", "--out", tmp_path / "out"]
    code, said, complaint = potluck_says("replay", recorded, *words)
    assert (code, said) == (1, "")
    assert complaint.splitlines() == [
        "potluck: nois broke down: the weights are not finite",
        "potluck: tis broke down: the weights are not finite",
        "potluck: every method broke down; nothing can be compared",
    ]


def test_ctrl_c_keeps_the_lines_that_are_there(recorded, potluck_says, tmp_path, monkeypatch):
    true = rehearsal.replay

    def stopped(plan, *, say, trust_code):
        lines = true(plan, say=say, trust_code=trust_code)
        yield next(lines)
        lines.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(rehearsal, "replay", stopped)
    code, said, complaint = potluck_says("replay", recorded, "--out", tmp_path / "out")
    assert code == 130
    assert complaint == "potluck: stopped; 1 lines are kept; a replay begins anew each time\n"
    assert ["small", "NoIS", "1-1"] in [row.split()[:3] for row in said.splitlines()]
    assert len((tmp_path / "out" / "replay.jsonl").read_text().splitlines()) == 1


def test_what_is_wrong_is_one_line_and_nothing_is_written(recorded, potluck_says, tmp_path):
    (tmp_path / "file").write_text("")
    for folder, out, complaint in (
        ("nowhere", "out", "there is no run folder nowhere"),
        (".", "out", ". is no run: it has no recipe.json"),
        (recorded, "file/out", "; --out names another folder"),
    ):
        code, said, complained = potluck_says("replay", folder, "--out", tmp_path / out)
        assert (code, said) == (2, "")
        assert complaint in complained
        assert complained.count("\n") == 1
        assert [path.name for path in tmp_path.iterdir()] == ["file"]


def line(method="tis", round=0, **known):
    nothing = dict.fromkeys(field for field in ReplayRow.__dataclass_fields__)
    return ReplayRow(**{**nothing, "node": "small", "method": method, "round": round,
                   "filtered_share": 0.0, "sources": {}, **known})  # fmt: skip


def printed(lines, table=table):
    console = Console(width=80)
    with console.capture() as caught:
        console.print(table(lines, console))
    return caught.get()


def test_the_table_has_the_mean_of_what_was_measured():
    lines = [line(cosine=0.2), line(round=1), line(round=2, cosine=0.6, filtered_share=0.3)]
    last = printed(lines).splitlines()[-1].split()
    assert last == ["small", "TIS", "1-3", "0.400", "-", "-", "-", "10%", "-"]
    assert max(map(len, printed(lines).splitlines())) <= 80


def test_the_last_table_has_the_difference_of_each_two_methods_paired_over_rounds():
    lines = [line("nois", at, cosine=x, ceiling=0.5) for at, x in enumerate((0.1, 0.2, 0.3))]
    # Differences .1, .3, .2: mean .2, s = .1; 4.3027 s / sqrt(3) = .248
    lines += [line("tis", at, cosine=x) for at, x in enumerate((0.2, 0.5, 0.5))]
    lines += [line("lws", 2, cosine=0.9), line("nois", node="large")]
    rows = [row.split() for row in printed(lines, differences_table).splitlines()]
    assert rows[1:] == [
        ["small", "TIS", "-", "NoIS", "3", "+.200", "[-.048,", "+.448]", "-"],
        ["small", "LWS", "-", "NoIS", "1", "-", "-"],
        ["small", "LWS", "-", "TIS", "1", "-", "-"],
    ]


def test_the_authors_table_has_the_last_habit():
    tested = {"tested_habit": "^ #", "habit_gain": -0.25}
    nothing = dict.fromkeys(tested)
    lines = [
        line(round=at, sources={"large": its, "small": nothing, "far": nothing})
        for at, its in enumerate((tested | {"habit_gain": 1.0}, tested, nothing))
    ]
    rows = [row.strip().split(maxsplit=3) for row in printed(lines, authors_table).splitlines()]
    assert rows[-2:] == [
        ["small", "TIS", "far", "-"],
        ["small", "TIS", "large", "'^ #' -0.250"],
    ]
