"""A run's folder as a feed: what is read, what is left out, and what a change holds."""

import json
import random
import shutil
import time
from dataclasses import fields
from types import SimpleNamespace

import msgspec
import pytest

from potluck.reports import RoundReport
from potluck.reports.answers import ControlAnswer, add_answers
from potluck.reports.doubts import NOTHING
from potluck.reports.statistics import EARNED_NOTHING
from potluck.reports.status import AuthorStatus, PeerLine
from potluck.show.web import rounds as rounds_module
from potluck.show.web.folder import NotHereError, WatchedRun
from potluck.show.web.rounds import NodeRounds
from potluck.tasks.faults import KINDS
from show.terminal.run_folders import HOSTILE, metrics, source
from show.web.run_files import append, make_run, status, write_status


def seen(feed, since=0):
    """Return a view as a page gets it."""
    return msgspec.json.decode(msgspec.json.encode(feed.view(since)))


def looked(folder, **options):
    feed = WatchedRun(folder, **options)
    feed.look()
    return feed


def merge(page, change):
    """Put a change on a page as its script does."""
    sections = ("method", "settings", "nodes", "evaluations", "matrix", "habits", "events")
    page |= {name: change[name] for name in sections if change.get(name) is not None}
    page |= {"now_s": change["now_s"], "is_over": change.get("is_over", False)}
    for node, rows in (change.get("curves") or {}).items():
        whole = page.setdefault("curves", {}).setdefault(node, {"first": 0, "columns": {}})
        first, columns = rows["first"], whole["columns"]
        for name, added in rows["columns"].items():
            old = columns.get(name, [])[:first]
            columns[name] = old + [None] * (first - len(old)) + added
    return page


def test_why_completions_earned_nothing_are_columns_which_have_a_0_where_none_did(tmp_path):
    path = make_run(tmp_path / "run", "small", rounds=1)
    rounds = [
        metrics(1, own_earned_nothing={"wrong": 7, "cut": 2}, partial=False),
        metrics(2, own_earned_nothing={}, partial=False),
    ]
    append(path / "small/metrics.jsonl", *rounds)
    columns = seen(looked(path))["curves"]["small"]["columns"]
    found = {kind: columns[f"own_earned_nothing/{kind}"] for kind in EARNED_NOTHING}
    assert found == {
        "cut": [None, 2, 0],
        "empty": [None, 0, 0],
        "form": [None, 0, 0],
        "wrong": [None, 7, 0],
    }
    assert {*EARNED_NOTHING} == {*NOTHING} == {*KINDS}


def test_each_reward_function_of_an_evaluation_is_a_column(tmp_path):
    path = make_run(tmp_path / "r", "small")
    rewards = {f"r{at}": at / 10 for at in range(99)}
    append(path / "small/evaluation.jsonl", {"round": 5, "rewards": rewards, "partial": True})
    feed = looked(path)
    columns = seen(feed)["evaluations"]["small"]
    assert (columns["rewards/r3"], columns["partial"]) == ([None, 0.3], [None, 1])
    assert len(columns) == rounds_module.MOST_COLUMNS


def test_controls_are_told_while_they_are_made_and_when_they_have_told(tmp_path):
    path = make_run(tmp_path / "r", "small", "large", control=["half"])
    for node in ("small", "large"):
        write_status(path, node, phase="ended", round=40)
    feed = looked(path)
    assert not feed.view().is_over  # they come next
    assert feed.view().control_command.endswith("--resume --control half")
    for strange in ("control..small/small", "control.half.small/deep/small"):
        append(path / strange / "metrics.jsonl", {"round": 0})
    append(path / "control.half.small/small/metrics.jsonl", metrics(0), metrics(1))
    feed.look()
    told = {(each.node, each.kind): each for each in feed.view().controls}
    assert told["small", "half"].columns == {"round": [0, 1], "own_reward_mean": [0.5, 0.5]}
    assert not feed.view().is_over
    shutil.rmtree(path / "control..small")
    shutil.rmtree(path / "control.half.small")
    add_answers(path, [ControlAnswer("small", "half", 0.7, 0.6, (0.1, 0.05, 0.15), 9, (8, 8))])
    feed = looked(path)
    (one,) = feed.view().controls
    assert (one.verdict, one.answer.problems, one.columns["round"]) == ("better together", 9, [])
    assert feed.view().is_over


@pytest.mark.parametrize("folder", ["", "small", "_swarm"])
def test_a_node_that_is_gone_has_its_way_back(tmp_path, folder):
    path = make_run(tmp_path / "r", "small", "large")
    write_status(path, "small", phase="stopped", round=3)
    write_status(path, "large", phase="learn", round=3)
    file = {"": None, "small": "small/join.json", "_swarm": "_swarm/recipe.json"}[folder]
    for each in [file] if file else []:
        (path / each).parent.mkdir(exist_ok=True)
        (path / each).write_text("{}")
    feed = looked(path)
    small, large = feed.view().nodes
    how = f"join {path}/{file} --as small" if file else f"run {path}/recipe.json"
    assert (small.back, large.back) == (f"potluck {how} --out {path} --resume", "")


def test_the_whole_run_is_there(tmp_path):
    feed = WatchedRun(make_run(tmp_path / "r", "small", "large"))
    assert feed.look() == 1
    view = seen(feed)
    assert view["name"] == "my-run"
    assert view["rounds"] == 40
    assert view["method"] == "F-TIS"
    assert view["settings"]["objective.filter"] == "true"
    assert view["evaluations"]["small"]["validation"] == [0.25]
    columns = view["curves"]["large"]["columns"]
    assert columns["round"] == [0, 1, 2]
    assert columns["seconds/write"] == [1.25] * 3
    numbers = {f.name for f in fields(RoundReport) if f.type in (int, float, float | None)}
    assert numbers | {"missing", "refused"} <= set(columns)
    assert view["matrix"]["large"]["small"]["staleness"] == 0
    wanted = source()["reward_mean"]
    assert view["matrix"]["large"]["small"]["reward_mean"] == pytest.approx(wanted, rel=1e-5)


def test_changes_equal_the_whole_whatever_happens_in_between(tmp_path, monkeypatch):
    """Pages that look seldom or often have in the end what a page has that opens then."""
    monkeypatch.setattr(rounds_module, "MOST_ROWS", 30)
    dice = random.Random(7)
    nodes = ("small", "large", "third")
    folder = make_run(tmp_path / "r", *nodes)
    feed = WatchedRun(folder)
    pages = [(feed.look(), seen(feed)) for _ in range(3)]
    for turn in range(60):
        file = folder / dice.choice(nodes) / "metrics.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        if dice.random() < 0.15 and len(rows) > 2:  # resumed: the last rounds come again
            beside = file.with_name("beside")
            beside.write_text("")
            append(beside, *rows[: dice.randrange(1, len(rows))])
            beside.replace(file)
        else:
            seconds = {"write": 1.0, dice.choice(("learn", "evaluate")): dice.random()}
            append(file, metrics(rows[-1]["round"] + 1, loss=dice.random(), seconds=seconds))
        now = feed.look()
        for at, (step, page) in enumerate(pages):
            if turn % (1 + 7 * at) == 0:
                pages[at] = (now, merge(page, seen(feed, step)))
    feed.look()
    for step, page in pages:
        merge(page, seen(feed, step))
        whole = seen(feed)
        short = {n: len(c["columns"]["round"]) for n, c in whole["curves"].items()}
        assert max(short.values()) <= 31
        for node, curves in whole["curves"].items():
            got = page["curves"][node]["columns"]
            count = short[node]
            assert {name: got[name] for name in curves["columns"]} == curves["columns"]
            assert all(len(column) == count for column in curves["columns"].values())
        for name in ("nodes", "matrix", "habits", "events", "evaluations", "settings"):
            assert page[name] == whole[name]


def test_a_line_that_is_cut_off_waits_and_a_damaged_one_is_told_and_skipped(tmp_path):
    folder = make_run(tmp_path / "r", "small", rounds=1)
    file = folder / "small" / "metrics.jsonl"
    whole = json.dumps(metrics(1))
    with file.open("a") as out:
        out.write("{damaged\n" + whole[:40])
    feed = WatchedRun(folder)
    step = feed.look()
    view = seen(feed)
    assert view["curves"]["small"]["columns"]["round"] == [0]
    assert [event["text"] for event in view["events"]] == [
        "metrics.jsonl, line 2 cannot be read; it is left out"
    ]
    with file.open("a") as out:
        out.write(whole[40:] + "\n")
    feed.look()
    assert seen(feed, step)["curves"]["small"]["columns"]["round"] == [1]


def test_warnings_of_damaged_lines_crowd_nothing_out_and_go_with_their_file(tmp_path):
    folder = make_run(tmp_path / "r", "small", rounds=0)
    append(folder / "small" / "events.jsonl", {"time_s": 1.0, "text": "told"})
    file, beside = folder / "small" / "metrics.jsonl", folder / "small" / "beside"
    feed = looked(folder)
    file.write_text("{bad\n" * 600)
    feed.look()
    told = [event["text"] for event in seen(feed)["events"]]
    assert (len(told), "told" in told) == (500, True)
    append(beside, metrics(0))
    beside.replace(file)
    feed.look()
    assert [event["text"] for event in seen(feed)["events"]] == ["told"]


GARBAGE = [
    b"\xff\xfe\x00",
    b"[]",
    b'{"round": "x"}',
    b"[" * 100_000,
    b'{"round": 1e999}',
    b'{"round": ' + 999 * b"9" + b', "index": 1}',
    b'{"round": 2, "bytes": ' + 999 * b"9" + b"}",
    b'{"round": 3, "sources": {"third": {"completions": ' + 999 * b"9" + b"}}}",
    b'{"round": 7, "sources": {"small": 3}, "text": 4, "surprise": []}',
]


@pytest.mark.parametrize("name", ["metrics", "evaluation", "events", "completions", "recorded"])
def test_no_bytes_in_a_file_raise(tmp_path, name):
    folder = make_run(tmp_path / "r", "small")
    with (folder / "small" / f"{name}.jsonl").open("ab") as out:
        out.write(b"\n".join([*GARBAGE, b""]))
    append(folder / "small" / "metrics.jsonl", metrics(3))
    for garbage in GARBAGE if name == "metrics" else GARBAGE[:1]:
        (folder / "small" / "status.json").write_bytes(garbage)
        feed = looked(folder)
    assert seen(feed)["curves"]["small"]["columns"]["round"][:3] == [0, 1, 2]
    feed.texts("small")
    feed.pair("small", "large")


def test_hostile_names_are_bounded_and_stay_what_they_are(tmp_path):
    folder = make_run(tmp_path / "r", "small", rounds=0)
    many = {f"{n}-{HOSTILE}": source() for n in range(500)}
    long = {50_000 * "x": source()}
    phases = dict.fromkeys((5000 * "x", *(f"phase-{i}" for i in range(2000))), 1.0)
    row = metrics(0, sources=many | long, seconds=phases)
    append(folder / "small" / "metrics.jsonl", row)
    append(folder / "small" / "events.jsonl", dict.fromkeys(("kind", "text", "peer"), 5000 * "x"))
    view = seen(looked(folder))
    (event,) = view["events"]
    assert [len(event[name]) for name in ("kind", "text", "peer")] == [32, 500, 64]
    assert len(view["matrix"]["small"]) <= 128
    assert f"0-{HOSTILE}" in view["matrix"]["small"]
    columns = view["curves"]["small"]["columns"]
    assert "seconds/phase-0" in columns
    assert len(columns) < 150
    assert max(map(len, columns)) < 200


def test_a_node_elsewhere_tells_of_authors_that_are_heard_here_and_of_no_others(tmp_path):
    folder = make_run(tmp_path / "r", "small", rounds=1)
    told = dict.fromkeys(("small", "third", "made-up"), AuthorStatus(9))
    far = PeerLine(line=status("far", authors=told).own)
    write_status(folder, "small", peers={"far": far, "third": PeerLine()})
    assert set(seen(looked(folder))["matrix"]["far"]) == {"small", "third"}


def test_a_run_is_over_when_all_nodes_that_are_here_have_ended_since_it_began(tmp_path):
    folder = make_run(tmp_path / "r", "small", "large", rounds=1)
    write_status(folder, "small", phase="ended", round=1)
    write_status(folder, "large", phase="learn", round=1)
    assert not looked(folder).view().is_over
    write_status(folder, "large", phase="stopped", round=1)
    resumed = looked(folder, begins=True)
    assert looked(folder).view().is_over
    assert not resumed.view().is_over  # so it ended before
    for name in ("small", "large"):
        write_status(folder, name, phase="stopped", round=1)
    resumed.look()
    assert resumed.view().is_over


def test_a_node_that_says_nothing_more_turns_silent_without_a_new_line(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "r", "small")
    write_status(folder, "small")
    feed, now_s = WatchedRun(folder), time.time()
    assert feed.look() == 1
    assert feed.view().nodes[0].state == "training"
    later = SimpleNamespace(time=lambda: now_s + 6, monotonic=time.monotonic)
    monkeypatch.setattr("potluck.show.web.folder.time", later)
    assert feed.look() == 2
    assert feed.view(1).nodes[0].state == "silent"


def test_events_have_their_kind_and_what_several_nodes_tell_at_once_is_told_once(tmp_path):
    folder = make_run(tmp_path / "r", "small", "large", rounds=1)
    left = {"round": 0, "kind": "left", "text": "'far' left", "peer": "far"}
    for name, at_s in (("small", 100.0), ("large", 101.0), ("small", 150.0)):
        append(folder / name / "events.jsonl", {**left, "time_s": at_s})
    append(folder / "large" / "events.jsonl", {"time_s": 200.0, "text": "as 0.2.0 wrote it"})
    told = [(event["kind"], event["time_s"]) for event in seen(looked(folder))["events"]]
    assert told == [("left", 100.0), ("left", 150.0), ("message", 200.0)]


def test_a_pair_over_the_rounds(tmp_path):
    folder = make_run(tmp_path / "r", "small")
    its = source(silenced_share=1, tested_habit="oh", habit_gain=-1, habit_gain_error=0.5)
    append(folder / "small" / "metrics.jsonl", metrics(3, sources={"large": its}))
    feed = looked(folder)
    pair = feed.pair("small", "large")
    assert pair.columns["round"] == [0, 1, 2, 3]
    (habit,) = feed.view().habits["small"]
    assert "they have 'oh', and small's own that do earn 1.00 less" in habit
    with pytest.raises(NotHereError, match="nobody"):
        feed.pair("small", "nobody")
    with pytest.raises(NotHereError, match="these are: small"):
        feed.pair("../small", "large")


def test_a_link_that_leads_out_of_the_run_is_not_followed(tmp_path):
    folder = make_run(tmp_path / "r", "small")
    (folder / "large").symlink_to(make_run(tmp_path / "other", "large") / "large")
    with pytest.raises(NotHereError):
        looked(folder).texts("large")


def test_an_older_round_goes_before_a_newer_one_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(rounds_module, "MOST_ROWS", 200)
    rounds = NodeRounds()
    for at in range(201):
        rounds.add(at, at, {}, {})
    columns = rounds.since(199).columns
    assert len(columns["round"]) < 200
    assert columns["round"][-100:] == list(range(101, 201))


def test_means_are_over_an_authors_last_rounds_and_tell_how_old_they_are():
    rounds = NodeRounds()
    for at in range(29):
        came = {"south": AuthorStatus(1, float(at))} if at < 27 else {}
        rounds.add(1, at, {}, came)
    cell = rounds.matrix()["south"]
    assert cell["reward_mean"] == sum(range(17, 27)) / 10
    assert cell["staleness"] == 2
