"""Real nodes in processes of their own: as good as in one, and no worse when one is killed."""

import os
import signal

import pytest
import torch

import tiny
from faults.swarm import Swarm
from forked import FORKING, Forked
from launch.runs import Hears, left_by
from potluck.exchange import batches_of
from potluck.launch import children
from potluck.launch.in_process import run
from potluck.launch.local_swarm import run_local_swarm
from potluck.node.storage.folder import rounds_saved
from potluck.node.storage.record import Record

NAMES = ("east", "north", "west")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {name: tiny.save(folder / name, seed=i) for i, name in enumerate(NAMES)}


def recipe(models, *overrides, names=NAMES, **tables):
    short = ("rounds=3", "problems_per_round=6", "checkpoint_every=2", "swarm.gather_s=600")
    nodes = {name: models[name] for name in names}
    return tiny.recipe(nodes, *short, "evaluation.problems=4", *overrides, **tables)


def test_a_process_for_each_node_gives_the_numbers_of_one_for_all_ctrl_c_or_not(
    models, monkeypatch, tmp_path
):
    """To the last bit: nobody was late, so all learned from the same completions and go on so."""
    monkeypatch.setattr(children, "subprocess", FORKING)
    names, each = NAMES[:2], tmp_path / "each"

    def config(rounds):
        return recipe(models, f"rounds={rounds}", "checkpoint_every=3", names=names)

    class Impatient(Hears):
        def round_done(self, node, report):
            super().round_done(node, report)
            if (node, report.round) == (NAMES[0], 3):  # so the other has done 2 at least
                os.kill(os.getpid(), signal.SIGINT)

    # Too long to end by itself, however late Ctrl-C comes to the nodes.
    ended = run_local_swarm(config(1_000), each, resume=False, display=(first := Impatient()))
    assert ended.interrupted
    assert set(ended.codes.values()) == {130}
    done = {name: rounds_saved(each / name)[-1] for name in names}
    assert min(done.values()) > 2
    rounds = max(done.values()) + 4
    threads = torch.get_num_threads()
    run(config(rounds), tmp_path / "one")
    torch.set_num_threads(threads)
    ended = run_local_swarm(config(rounds), each, resume=True, display=(hears := Hears()))
    assert ended.codes == dict.fromkeys(names, 0)
    assert not ended.interrupted
    for name in names:
        assert left_by(each, name, rounds) == left_by(tmp_path / "one", name, rounds)
        assert [r for n, r in first.rounds if n == name] == list(range(done[name]))
        assert [r for n, r in hears.rounds if n == name] == list(range(done[name], rounds))
        assert {"write", "learn"} <= {p for n, p, *_ in first.phases if n == name}
        assert "evaluate" in {p for n, p, *_ in hears.phases if n == name}
    assert sorted(node for node, _ in hears.evaluations) == sorted(names)


SLOW = """
import time


def reward(completions, **columns):
    time.sleep(0.05)
    return [float(len(text) % 3) for text in completions]
"""
"""Called for each of 6 groups: a third of a second for a round, so that one can come back in it."""


@pytest.fixture(scope="module")
def killed(models, tmp_path_factory):
    """Three nodes; in the middle of a round one is killed, and then brought back."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "slow.py").write_text(SLOW)
    reward = [{"function": f"{folder / 'slow.py'}:reward"}]
    config = recipe(models, "rounds=200", "checkpoint_every=3", reward=reward)
    with Swarm(config, folder / "run", more=["--trust-code"], popen=Forked) as swarm:
        swarm.start()
        swarm.wait_until(lambda: swarm.round("west") >= 3, "four rounds")
        swarm.signal("west", signal.SIGKILL)
        before = swarm.round("west")
        swarm.wait_until(lambda: swarm.round("east") >= before + 4, "the others go on")
        swarm.start("west", resume=True)
        swarm.wait_until(lambda: swarm.round("west") > before + 1, "it is back")
        back = next(m["round"] for m in swarm.metrics("west") if m["round"] > before + 1)
        swarm.wait_until(lambda: swarm.round("east") >= back + 4, "it is used")
        for name in NAMES:
            swarm.signal(name, signal.SIGINT)
        codes = swarm.wait()
        yield swarm, before, back, codes


def test_survivors_lose_nothing_of_each_other(killed):
    swarm, _, _, _ = killed
    for name, other in (("east", "north"), ("north", "east")):
        lines = swarm.metrics(name)
        assert [line["round"] for line in lines] == list(range(len(lines)))
        for line in lines[:-1]:  # Ctrl-C comes to one before it comes to the other
            assert set(line["missing"]) <= {"west"}
            assert line["sources"][other]["completions"] in ((8, 12) if line["absent"] else (8,))


def test_they_close_the_round_without_waiting_for_the_deadline(killed):
    swarm, _, _, _ = killed
    slowest = max(line["seconds"]["wait"] for line in swarm.metrics("east"))
    assert slowest < swarm.config.deadline_s / 2


def test_the_killed_one_resumes_where_the_others_are_and_is_used_again(killed):
    swarm, before, back, _ = killed
    rounds = [line["round"] for line in swarm.metrics("west")]
    assert rounds == sorted(set(rounds))
    assert set(range(before + 1)) <= set(rounds)  # lived again from its own files
    assert back > before + 2  # what it slept through is not lived
    used = [m["round"] for m in swarm.metrics("east") if "west" in m["sources"]]
    again = min(round for round in used if round > before + 1)
    assert again <= back + 1
    gone = [m["round"] for m in swarm.metrics("east") if "west" in m["missing"]]
    assert set(range(before + 2, back)) <= set(gone)


def test_nobody_learns_twice_from_a_batch(killed):
    """Not in time and then, started again, as if it had been late."""
    swarm, _, _, _ = killed
    for name in NAMES:
        seen = set()
        record = Record(swarm.folder / name, run="tiny", node=name)
        for file in sorted((swarm.folder / name / "rounds").glob("*.ptlk")):
            batches = set(batches_of(record.kept_round(int(file.stem))))
            assert not batches & seen
            seen |= batches
        assert {author for author, _ in seen} == set(NAMES)


def test_ctrl_c_leaves_a_checkpoint_of_each(killed):
    swarm, _, _, codes = killed
    assert codes == dict.fromkeys(NAMES, 130)
    for name in NAMES:
        assert rounds_saved(swarm.folder / name)[-1] == swarm.round(name) + 1


def test_it_says_who_left_and_who_came_back(killed):
    swarm, _, _, _ = killed
    log = swarm.log("east")
    assert log.index("'west' left") < log.rindex("'west' joined")
