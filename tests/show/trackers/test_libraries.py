"""The real libraries, without a network: what is read back from their files is what was told."""

import dataclasses
import json
import shutil
import struct
import threading
from collections import defaultdict

import pytest
from filelock import FileLock

import tiny
from displays import Listener
from potluck.config import as_tree
from potluck.launch.in_process import run
from potluck.show.trackers.libraries import (
    About,
    evaluation_values,
    has_credentials,
    round_values,
    wandb_address,
)
from potluck.show.trackers.tracked import TRACKERS, require_trackers
from potluck.types import PotluckError

NODES = ("large", "small")
WHOLE = ("log.group=whole", "log.completions=4", "group_size=12")


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """A home of its own for what the libraries keep; trackio asks for it when it is imported."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
            patch.setenv(name, str(folder / name))
        patch.setenv("NETRC", str(folder / "netrc"))
        patch.setenv("WANDB_ERROR_REPORTING", "false")  # it would go over the network
        patch.setenv("TRACKIO_DIR", str(folder / "trackio"))
        for name in ("WANDB_API_KEY", "WANDB_MODE", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
            patch.delenv(name, raising=False)
        import wandb
        from trackio import sqlite_storage

        # Asked for once in a process, which may come back to these tests after others.
        shutil.rmtree(sqlite_storage.TRACKIO_DIR, ignore_errors=True)
        # Its own lock gives up after ten seconds, which a busy machine takes to write.
        patch.setattr(sqlite_storage, "ProcessLock", FileLock)
        yield folder
        wandb.teardown()  # ends the process that it keeps


def about(node, folder):
    return About("curves", "digits", node, folder, 0, False, {}, "offline")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    models = {n: tiny.save(tmp_path_factory.mktemp(n), seed=i) for i, n in enumerate(NODES)}

    changes = {
        "rounds": 4,
        "checkpoint_every": 2,
        "evaluation": {"every": 2, "problems": 4, "out_of_distribution": 4},
        "log": {"to": list(TRACKERS), "project": "curves", "wandb_mode": "offline"},
    }
    return lambda *overrides: tiny.recipe(models, *overrides, **changes)


class Crash(Exception):
    pass


class CrashesAfter(Listener):
    def __init__(self, round):
        self.round = round

    def round_done(self, node, report):
        if (node, report.round) == ("small", self.round):
            raise Crash


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(recipe(*WHOLE), folder)
    return folder


@pytest.fixture(scope="module")
def cut(recipe, tmp_path_factory):
    """Crashed in round 3, with a checkpoint after round 2, and gone on with."""
    folder = tmp_path_factory.mktemp("cut") / "run"
    with pytest.raises(Crash):
        run(recipe("log.group=cut"), folder, display=CrashesAfter(3))
    run(recipe("log.group=cut"), folder, resume=True)
    return folder


def lines(folder, node, name):
    return [json.loads(line) for line in (folder / node / f"{name}.jsonl").read_text().splitlines()]


def told(folder, node):
    """{curve: [(round, value)]} as the run's own files have it."""
    curves = defaultdict(list)
    for line in lines(folder, node, "metrics"):
        for name, value in round_values(line).items():
            curves[name].append((line["round"], value))
    for line in lines(folder, node, "evaluation"):
        for name, value in evaluation_values(line).items():
            curves[name].append((line["round"], value))
    return dict(curves)


def tensorboard_events(folder, node):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder / "tensorboard" / node)).Reload()


def read_tensorboard(folder, node):
    events = tensorboard_events(folder, node)
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def wandb_records(file):
    """The records of a .wandb file: a log of LevelDB's, blocks of 32 KiB after 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # the whole of a record, or its end
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def wandb_files(folder, node):
    (id,) = (folder / "wandb" / f"{node}.id").read_text().split()
    return sorted((folder / "wandb").glob(f"offline-run-*/run-{id}.wandb"))


def read_wandb(folder, node):
    curves = defaultdict(list)
    for file in wandb_files(folder, node):
        for record in wandb_records(file):
            items = (i for i in record.history.item if len(i.nested_key) == 1)  # others: of a table
            row = {i.nested_key[0]: json.loads(i.value_json) for i in items}
            for name, value in row.items():
                if name != "round" and not name.startswith("_"):
                    curves[name].append((row["round"], value))
    return dict(curves)


def trackio_rows(group, node):
    from trackio.sqlite_storage import SQLiteStorage

    return SQLiteStorage.get_logs("curves", f"{group}/{node}")


def read_trackio(folder, node):
    curves = defaultdict(list)
    for row in trackio_rows(folder.parent.name.rstrip("0123456789"), node):
        for name, value in row.items():
            if name not in ("step", "timestamp", "traces"):
                curves[name].append((row["step"], value))
    return dict(curves)


READERS = {"tensorboard": read_tensorboard, "wandb": read_wandb, "trackio": read_trackio}


@pytest.mark.parametrize("name", TRACKERS)
def test_the_curves_are_the_numbers_of_the_runs_own_files(whole, name):
    for node in NODES:
        expected, drawn = told(whole, node), READERS[name](whole, node)
        assert set(drawn) == set(expected) >= {"reward/mean", "evaluation/validation"}
        for curve, points in expected.items():
            assert drawn[curve] == [
                (round, pytest.approx(value, rel=1e-6 if name == "tensorboard" else 1e-15))
                for round, value in points
            ]
    assert told(whole, "small")["reward/own"] != told(whole, "large")["reward/own"]


@pytest.mark.parametrize("name", TRACKERS)
def test_what_is_closed_leaves_no_thread_behind(home, tmp_path, name):
    before = set(threading.enumerate()) if name != "wandb" else None
    tracker = TRACKERS[name](about("small", tmp_path))
    if before is None:  # its threads are those of its process, which serves all runs
        before = set(threading.enumerate())
    tracker.log(0, {"loss": 0.5})
    if name == "tensorboard":  # a round can be seen while the run goes on
        assert read_tensorboard(tmp_path, "small") == {"loss": [(0, 0.5)]}
    tracker.close(failed=False)
    assert set(threading.enumerate()) <= before


def test_a_resumed_run_shows_each_round_once_in_tensorboard(cut):
    for node in NODES:
        drawn = read_tensorboard(cut, node)
        assert [round for round, _ in drawn["loss"]] == [0, 1, 2, 3]
        assert [round for round, _ in drawn["evaluation/validation"]] == [0, 2, 4]
        assert drawn["loss"] == [(r, pytest.approx(v)) for r, v in told(cut, node)["loss"]]


def test_a_resumed_run_is_the_same_run_of_wandb_and_tells_what_it_lives_again_again(cut):
    for node in NODES:
        (before, after) = wandb_files(cut, node)  # of one id, so that they are one run
        assert before != after
        expected = told(cut, node)["loss"]
        again = read_wandb(cut, node)["loss"]
        first = 4 if node == "large" else 3  # it crashed before "small" told of round 3
        assert again == expected[:first] + expected[2:]


def test_a_resumed_run_is_the_same_run_of_trackio_and_another_one_is_not(cut, tmp_path):
    from trackio.sqlite_storage import SQLiteStorage

    rounds = [row["step"] for row in trackio_rows("cut", "large") if "loss" in row]
    assert rounds == [0, 1, 2, 3, 2, 3]
    for _ in range(2):
        tracker = TRACKERS["trackio"](about("large", tmp_path))
        tracker.log(0, {"loss": 0.5})
        tracker.close(failed=False)
    runs = SQLiteStorage.get_run_records("curves")
    names = [record["name"] for record in runs]
    assert names.count("cut/large") == 1
    assert names.count("digits/large") == 2


def test_wandb_is_told_the_recipe_the_group_and_how_it_ended(whole, cut, recipe):
    whole_and_cut = (whole, WHOLE, [0]), (cut, ["log.group=cut"], [1, 0])
    for folder, changes, codes in whole_and_cut:
        group = changes[0].removeprefix("log.group=")
        for node in NODES:
            files = wandb_files(folder, node)
            assert [
                record.exit.exit_code
                for file in files
                for record in wandb_records(file)
                if record.HasField("exit")
            ] == codes
            records = [record for file in files for record in wandb_records(file)]
            runs = [record.run for record in records if record.HasField("run")]
            assert {(r.project, r.run_group, r.display_name) for r in runs} == {
                ("curves", group, f"{group}/{node}")
            }
            config = {item.key: json.loads(item.value_json) for item in runs[0].config.update}
            expected = json.loads(json.dumps(as_tree(recipe(*changes))))
            assert {key: config[key] for key in expected} == expected
            # Every curve's x axis is the round.
            axes = {r.metric.glob_name: r.metric.step_metric for r in records}
            assert axes["*"] == "round"


def test_the_recipe_is_in_tensorboard_and_trackio_too(whole, recipe):
    from trackio.sqlite_storage import SQLiteStorage

    expected = json.loads(json.dumps(as_tree(recipe(*WHOLE))))
    (text,) = tensorboard_events(whole, "small").Tensors("recipe/text_summary")
    assert json.loads(text.tensor_proto.string_val[0]) == expected
    config = SQLiteStorage.get_run_config("curves", "whole/small")
    assert {key: config[key] for key in expected} == expected
    assert config["_Group"] == "whole"


def test_a_run_that_is_watched_is_the_same_run(whole, recipe, tmp_path):
    run(recipe(*WHOLE, "log.to=[]"), tmp_path / "run")
    for node in NODES:
        for name in ("metrics", "evaluation", "completions"):
            watched, alone = lines(whole, node, name), lines(tmp_path / "run", node, name)
            for line in (*watched, *alone):
                line.pop("seconds", None)
            assert watched == alone
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert not (tmp_path / "run" / "wandb").exists()


def test_a_run_of_trackio_that_a_user_has_open_stays_open(home, tmp_path, capsys):
    import trackio

    mine = trackio.init("mine", embed=False, auto_log_cpu=False, auto_log_gpu=False)
    capsys.readouterr()
    TRACKERS["trackio"](about("small", tmp_path)).close(failed=False)
    assert capsys.readouterr().out == ""  # nothing of what it prints tears the display
    assert trackio.context_vars.current_run.get() is mine
    trackio.finish()


def test_wandb_knows_no_account_in_an_empty_home_and_asks_nobody(home, monkeypatch):
    """Neither the user nor a server: a check sends nothing."""
    import wandb

    monkeypatch.setattr(wandb, "login", None)
    assert not has_credentials()
    monkeypatch.setenv("WANDB_API_KEY", "0" * 3)
    with pytest.raises(PotluckError, match=r"wandb: .* has 3 characters.*; call `wandb login"):
        has_credentials()
    for key in ("0" * 40, "local-" + "0" * 40, "wandb_v1_" + "0" * 77):
        monkeypatch.setenv("WANDB_API_KEY", key)
        assert has_credentials()
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setattr(wandb, "run", object())  # whoever has a run open has an account
    assert has_credentials()


def test_an_account_is_that_of_the_server_that_the_user_has_chosen(home, tmp_path, monkeypatch):
    key = "0" * 40
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    (tmp_path / "netrc").write_text(f"machine own.example login user password {key}\n")
    assert wandb_address() == "https://api.wandb.ai"
    assert not has_credentials()
    (tmp_path / "settings").write_text("[default]\nbase_url = https://own.example\n")
    assert wandb_address() == "https://own.example"
    assert has_credentials()
    monkeypatch.setenv("WANDB_BASE_URL", "https://other.example")
    assert wandb_address() == "https://other.example"
    assert not has_credentials()


@pytest.mark.parametrize("folder", ["wandb", ".wandb"])
@pytest.mark.parametrize("line, is_fine", [
    ("entity = us\nproject = p", True),
    ("base_url = http://127.0.0.1:9", False),
    ("https_proxy = http://127.0.0.1:9", False),
    ("api_key = 0", False),
    ("insecure_disable_ssl = true", False),
    ("x_extra_http_headers = {}", False),
])  # fmt: skip
def test_settings_of_the_current_folder_choose_no_server(
    home, tmp_path, monkeypatch, folder, line, is_fine
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "settings").write_text(f"[default]\n{line}\n")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    if is_fine:
        require_trackers(["wandb"], wandb_mode="online")
    else:
        with pytest.raises(PotluckError, match=r"W&B would read .* of this folder"):
            require_trackers(["wandb"], wandb_mode="online")
        require_trackers(["tensorboard"], wandb_mode="online")


def test_the_mode_is_what_wandb_begins_with(recipe, tmp_path, monkeypatch):
    import wandb

    class Enough(Exception):
        pass

    def init(*, mode, settings, **_):
        # Nobody's screen, source code or repository.
        seen = (settings.console, settings.save_code, settings.disable_git, settings.silent)
        assert seen == ("off", False, True, True)
        raise Enough(mode)

    monkeypatch.setattr(wandb, "init", init)
    for mode in ("online", "offline"):
        with pytest.raises(Enough, match=mode):
            TRACKERS["wandb"](dataclasses.replace(about("small", tmp_path), wandb_mode=mode))


CALLED = {"role": "assistant", "content": "", "calls": [{"name": "add", "arguments": {"a": 1}}]}
ROWS = [
    {"round": 2, "problem": "p|1", "text": "4+8\n```<b>|", "turns": [CALLED]},
    {"round": 2, "problem": "p2", "text": "", "turns": [{"role": "user", "content": "<b>|"}]},
]


def tensorboard_table(folder):
    (event,) = tensorboard_events(folder, "small").Tensors("completions/text_summary")
    lines = event.tensor_proto.string_val[0].decode().splitlines()
    assert event.step == 2
    assert all(line.startswith("    ") for line in lines)  # code, whatever was written
    decoder, text, read = json.JSONDecoder(), "\n".join(lines).strip(), []
    while text:
        row, end = decoder.raw_decode(text)
        read, text = [*read, row], text[end:].strip()
    return read


def wandb_table(folder):
    (file,) = (folder / "wandb").rglob("completions/table*.table.json")
    table = json.loads(file.read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    return [row | {"turns": json.loads(row["turns"])} for row in rows]


TABLES = {"tensorboard": tensorboard_table, "wandb": wandb_table}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_completions_is_read_back(home, tmp_path, name):
    tracker = TRACKERS[name](about("small", tmp_path))
    tracker.table(2, ROWS, [])
    tracker.close(failed=False)
    assert TABLES[name](tmp_path) == ROWS


def test_completions_of_all_authors_and_alerts_are_in_trackio(whole, tmp_path, capsys):
    from trackio.sqlite_storage import SQLiteStorage

    traces = SQLiteStorage.get_traces("curves", "whole/small")
    recorded = lines(whole, "small", "recorded")
    assert sorted(trace["step"] for trace in traces) == [line["round"] for line in recorded]
    assert {trace["metadata"]["author"] for trace in traces} == set(NODES)
    problems = {line["problem"]: line for line in lines(whole, "small", "problems")}
    for trace in traces:
        facts = trace["metadata"]
        asked, answered = (message["content"] for message in trace["messages"])
        assert asked == problems[facts["problem"]]["question"]
        assert 0 <= facts["likelihood"] <= 1
        assert facts["author"] != "small" or facts["weight"] in (1, None)
        assert answered
    tracker = TRACKERS["trackio"](about("small", tmp_path))
    capsys.readouterr()
    tracker.alert(7, "small: silent", "nothing came of large")
    tracker.close(failed=False)
    assert capsys.readouterr().out == ""
    alerts = SQLiteStorage.get_alerts("curves", "digits/small")
    told = "small: silent", "nothing came of large", 7
    assert told in [(alert["title"], alert["text"], alert["step"]) for alert in alerts]
