"""Whole runs of nodes at their own pace, in one process and in several."""

import pytest

from launch.runs import crash, left_by, lines, recipes
from launch.test_launch import NAMES, StopsAt, outcome
from potluck.config import ConfigError
from potluck.exchange import Message, Received, decode, decode_round, memory
from potluck.exchange.keys.keys import without_signature
from potluck.launch.in_process import run
from potluck.objective import habit

FREE = ("pace=free", "plan=horizontal", "objective.method=lws")
ROUNDS = 5
recipe = recipes(f"rounds={ROUNDS}", "checkpoint_every=2", *FREE)


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("free") / "run"
    run(recipe(), folder)
    return folder


@pytest.fixture(scope="module")
def whole_outcome(whole):
    return outcome(whole, ROUNDS)


def messages(folder, node) -> list[list[Message]]:
    """What each round of the node was learned from."""
    files = sorted((folder / node / "rounds").iterdir())
    rounds = [
        decode_round(file.read_bytes(), run="tiny", round=int(file.stem), node=node)
        for file in files
    ]
    return [[decode(without_signature(data)) for data in round.messages] for round in rounds]


def test_each_batch_is_learned_from_once_and_is_held_against_own_completions(whole):
    for node, other in zip(NAMES, NAMES[::-1], strict=True):
        rounds = messages(whole, node)
        own = [[m.round for m in r if m.sender == node] for r in rounds]
        assert own == [[i] for i in range(ROUNDS)]
        foreign = [m.round for r in rounds for m in r if m.sender == other]
        assert foreign == sorted(set(foreign))
        assert len(foreign) >= ROUNDS - 1  # the last one may come when the other has ended
        for line in lines(whole, node, "metrics")[1:]:
            assert (
                line["sources"][other]["completions"] == line["sources"][node]["completions"] == 8
            )
            assert line["joint_share"] == 1
            assert line["staleness"] in (0, 1)
            assert (line["missing"], line["late"], line["unasked"]) == ([], 0, 0)


def test_no_problem_is_written_twice_in_a_pass(whole):
    for node in NAMES:
        written = [id for line in lines(whole, node, "written") for id in line["rewards"]]
        assert len(written) == len(set(written)) == 4 * ROUNDS


def test_after_several_crashes_it_goes_on_to_the_same_end(recipe, whole_outcome, tmp_path):
    for at, round in enumerate((0, 3, 3)):
        crash(recipe(), tmp_path / "cut", round, resume=at > 0)
    run(recipe(), tmp_path / "cut", resume=True)
    assert outcome(tmp_path / "cut", ROUNDS) == whole_outcome


@pytest.mark.parametrize("node", NAMES)
def test_ctrl_c_leaves_what_it_can_go_on_from(recipe, whole_outcome, tmp_path, node):
    """The first node has learned from a round that the second one writes."""
    assert run(recipe(), tmp_path / "cut", display=StopsAt(1, "write", node=node)).interrupted
    assert not run(recipe(), tmp_path / "cut", resume=True).interrupted
    assert outcome(tmp_path / "cut", ROUNDS) == whole_outcome


def test_the_intake_decides_the_parts_of_a_round(recipe, tmp_path):
    run(recipe("intake=3", "rounds=2", "group_size=8"), tmp_path / "much")
    (_, line) = lines(tmp_path / "much", "small", "metrics")
    assert {author: its["completions"] for author, its in line["sources"].items()} == {
        "small": 8, "large": 8,
    }  # fmt: skip


def test_what_comes_while_a_first_round_is_written_is_learned_from(recipe, tmp_path, monkeypatch):
    receive, first = memory._Member.receive, set(NAMES)

    def later(member, round):
        if member._agreement.node in first:
            first.remove(member._agreement.node)
            return Received()
        return receive(member, round)

    monkeypatch.setattr(memory._Member, "receive", later)
    run(recipe("rounds=1"), tmp_path / "run")
    assert [len(messages(tmp_path / "run", node)[0]) for node in NAMES] == [1, 2]
    (report,) = lines(tmp_path / "run", NAMES[1], "metrics")
    assert report["joint_share"] == 1.0


def test_what_makes_no_sense_at_this_pace_is_refused_with_the_way_out(recipe):
    with pytest.raises(ConfigError, match="remove the weight"):
        recipe("node.small.weight=2")
    with pytest.raises(ConfigError, match="intake is 2, but pace is 'together'"):
        recipe("pace=together", "intake=2")
    with pytest.raises(ConfigError, match="set pace = 'together'"):
        recipe("node.small={engine={name='file', path='x.jsonl'}}")


def test_alone_it_writes_everything(recipe, tmp_path):
    run(recipe("rounds=2", names=["small"]), tmp_path / "run")
    assert [line["completions"] for line in lines(tmp_path / "run", "small", "metrics")] == [16, 16]


# The habit test.


@pytest.fixture
def easy(monkeypatch):
    """A test by which more is a habit: models that were never taught have none."""
    monkeypatch.setattr(habit, "SHARE", 0.2)
    monkeypatch.setattr(habit, "FOREIGN", 0.01)


def left_of(folder):
    return [left_by(folder, node, ROUNDS) for node in NAMES]


def silenced(folder):
    shares = [
        source["silenced_share"] or 0.0
        for node in NAMES
        for line in lines(folder, node)
        for source in line["sources"].values()
    ]
    return sum(shares)


def test_the_habit_test_takes_less_and_goes_on_after_a_crash_to_the_bit(easy, tmp_path, recipe):
    run(recipe(), tmp_path / "on")
    assert silenced(tmp_path / "on") > 0
    crash(recipe(), tmp_path / "cut", 3)
    run(recipe(), tmp_path / "cut", resume=True)
    assert left_of(tmp_path / "cut") == left_of(tmp_path / "on")
    (told, *_) = (
        source
        for node in NAMES
        for line in lines(tmp_path / "on", node)
        for source in line["sources"].values()
        if source["silenced_share"]
    )
    assert told["tested_habit"]
    assert told["habit_gain"] < told["habit_gain_error"]
    assert told["success_weight"] < 1
    run(recipe("objective.habit_test=false"), tmp_path / "off")
    assert left_of(tmp_path / "off") != left_of(tmp_path / "on")
    assert silenced(tmp_path / "off") == 0
