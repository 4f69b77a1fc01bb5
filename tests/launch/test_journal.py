"""What a run leaves of its course: status.json while it goes, events.jsonl for good."""

import json
import os
import signal
import time
from contextlib import suppress
from types import SimpleNamespace

import msgspec
import pytest

from displays import Listener
from launch.runs import recipes
from potluck.exchange import Status
from potluck.launch import journal as module
from potluck.launch.in_process import join, run
from potluck.launch.journal import Journal
from potluck.node.storage.record import Record
from potluck.reports.events import Notice
from potluck.reports.runs import STATUS
from potluck.reports.status import FolderStatus

LONG_S = 60.0
"""Reached only where something is broken."""
ALONE = ("deadline_s=0.1", "swarm.listen=['tcp/127.0.0.1:0']")


recipe = recipes("rounds=3", "checkpoint_every=1")


def status_of(folder):
    return msgspec.json.decode((folder / STATUS).read_bytes(), type=FolderStatus)


def events_of(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


class Reader(Listener):
    """Looks at the status when it has been written after each event."""

    def __init__(self, folder):
        self.folder, self.seen = folder, []

    def phase(self, node, phase, done, total):
        self.look(node)

    def round_done(self, node, report):
        self.look(node)

    def look(self, node):
        # Events reach this display before the journal, which shows the one before.
        shown_s, own = time.time(), None
        while not own or own.time_s <= shown_s:
            assert time.time() < shown_s + LONG_S, "the journal writes no more"
            time.sleep(module.BEAT_S)
            with suppress(FileNotFoundError):
                own = status_of(self.folder / node).own
        self.seen.append(own)


def test_the_status_follows_the_run_and_stays(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BEAT_S", 0.002)
    shown = Reader(tmp_path / "run")
    began_s = time.time()
    run(recipe(), tmp_path / "run", display=shown)
    assert {"write", "learn"} <= {line.phase for line in shown.seen}
    assert {0, 1, 2} <= {line.round for line in shown.seen}
    times = [line.time_s for line in shown.seen if line.node == "large"]
    assert began_s < times[0] < times[-1] < time.time()
    for name in ("large", "small"):
        last = status_of(tmp_path / "run" / name).own
        assert (last.node, last.phase, last.round, last.rounds) == (name, "ended", 3, 3)
        metrics = (tmp_path / "run" / name / "metrics.jsonl").read_text().splitlines()
        report = json.loads(metrics[-1])
        own = report["sources"][name]
        assert last.reward == report["own_reward_mean"]
        assert last.tokens_per_s == pytest.approx(own["tokens"] / report["seconds"]["write"])
        assert last.sent_bytes == report["sent_bytes"]
        assert set(last.authors) == {"large", "small"}
        assert last.authors[name].completions == own["completions"]
        assert last.parameters > 1000
        assert last.model == str(recipe().node[name].model)[:120]


def test_it_tells_of_the_peers_of_a_swarm(recipe, tmp_path):
    join(recipe("swarm.gather_s=0", *ALONE), "large", tmp_path / "run")
    status = status_of(tmp_path / "run" / "large")
    assert status.own.phase == "ended"
    small = status.peers["small"]
    assert (small.live, small.heard_s, small.newest_round) == (False, None, None)
    assert "large begins without small" in [
        e["text"] for e in events_of(tmp_path / "run" / "large")
    ]


def test_checkpoints_and_messages_are_kept_with_their_times(recipe, tmp_path):
    began_s = time.time()
    for rounds in (2, 3):
        run(recipe(f"rounds={rounds}"), tmp_path / "run", resume=rounds > 2)
    events = events_of(tmp_path / "run" / "large")
    saved = [(e["round"], e["text"]) for e in events if e["kind"] == "checkpoint"]
    assert saved == [(at, f"saved after {at + 1} rounds") for at in range(3)]
    assert all(began_s - 1 < e["time_s"] < time.time() + 1 for e in events)


def test_a_start_that_came_to_nothing_leaves_the_folder_free(recipe, tmp_path):
    class Waits(Listener):
        pressed = False

        def phase(self, node, phase, done, total):
            if phase == "wait" and not self.pressed:
                self.pressed = True
                os.kill(os.getpid(), signal.SIGINT)

    made = recipe("swarm.gather_s=30", *ALONE)
    assert join(made, "large", tmp_path / "run", display=Waits()).interrupted
    assert not (tmp_path / "run" / "large" / STATUS).exists()
    join(recipe("swarm.gather_s=0", *ALONE), "large", tmp_path / "run")


@pytest.fixture
def kept(recipe, tmp_path):
    """A journal, its config, and stand-ins for its nodes, which have heard nothing."""
    config, told = recipe("rounds=2"), []

    def exchange(tell):
        return SimpleNamespace(status=lambda: Status({}, 0), tell=tell)

    def journal(tell=told.append, first=0):
        nodes = [
            SimpleNamespace(
                name=name,
                exchange=exchange(tell),
                record=Record(tmp_path / name, run="x", node=name),
            )
            for name in config.node
        ]
        return Journal(config, tmp_path, tuple(config.node), first), nodes

    journal.told, journal.folder = told, tmp_path
    return journal


def test_a_journal_that_cannot_be_told_or_written_ends_no_run(kept, monkeypatch):
    def broken(*_):
        raise RuntimeError("a transport of somebody's own")

    def full(path, data, *, synced):
        raise OSError(28, "No space left on device", str(path))

    journal, nodes = kept(broken)
    with journal, journal.of(nodes):
        pass
    journal, nodes = kept()
    monkeypatch.setattr(module, "write_atomically", full)
    with journal, journal.of(nodes):
        journal.show(Notice("a run goes on"))
    assert [e["text"] for e in events_of(kept.folder / "large")] == ["a run goes on"]


def test_messages_are_bounded(kept, monkeypatch):
    monkeypatch.setattr(module, "MOST_EVENTS", 3)
    journal, nodes = kept()
    with journal:
        journal.show(Notice(f"message 0 {'x' * 9000}"))  # before the nodes are there
        with journal.of(nodes):
            for n in range(1, 9):
                journal.show(Notice(f"message {n} {'x' * 9000}"))
    told = events_of(kept.folder / "large")
    assert [e["text"][:9] for e in told] == ["message 0", "message 1", "3 message"]
    assert max(len(e["text"]) for e in told) == 500


@pytest.mark.parametrize("first, phase", [(2, "ended"), (1, "stopped")])
def test_the_swarm_is_told_how_each_node_ended(kept, first, phase):
    journal, nodes = kept(first=first)
    with journal, journal.of(nodes):
        pass
    assert {line.node: line.phase for line in kept.told} == dict.fromkeys(("large", "small"), phase)
    assert status_of(kept.folder / "small").own.phase == phase
