"""What happens to a run when the tools that draw its curves misbehave. They are stand-ins here."""

from dataclasses import replace
from typing import get_args

import pytest

import tiny
from displays import Listener
from potluck.builder.plan import check
from potluck.config import LogConfig
from potluck.launch.in_process import run
from potluck.reports import AuthorReport, EvaluationReport, RoundReport
from potluck.reports.events import Alert, Evaluated, Notice, RoundDone
from potluck.show.trackers import tracked
from potluck.show.trackers.libraries import About
from potluck.show.trackers.tracked import TRACKERS, NewCompletions, Tracked
from potluck.types import PotluckError
from show.terminal.run_folders import played
from show.web.run_files import append, completion, recorded

ROUND = RoundReport(
    3, reward_mean=0.5, loss=-0.25, missing=("north",), sources={"one": AuthorReport(k3=2.0)}
)


class Fake:
    """Writes down what it is told; breaks when it is told to."""

    def __init__(self, about, heard, breaks=()):
        self.about, self.heard, self.breaks = about, heard, breaks
        self.tell("open")

    def tell(self, *what):
        self.heard.append((self.about.node, *what))
        for when in self.breaks:
            if what[: len(when)] == when:
                raise OSError(f"no space left\nfor {when[0]}")

    def log(self, round, values):
        self.tell("log", round, dict(values))

    def table(self, round, rows, recorded):
        self.tell("table", round, rows)

    def alert(self, round, title, text):
        self.tell("alert", round, title, text)

    def close(self, *, failed):
        self.tell("close", failed)


class Hears(Listener):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def about(node, folder="run"):
    return About("curves", "digits", node, folder, 0, False, {}, "offline")


@pytest.fixture
def fake(monkeypatch):
    """Puts a stand-in in the place of W&B; returns what it hears."""
    heard = []

    def put(*breaks, name="wandb"):
        monkeypatch.setitem(TRACKERS, name, lambda about: Fake(about, heard, breaks))
        return heard

    monkeypatch.setattr(tracked, "require_trackers", lambda *_, **__: None)
    monkeypatch.setattr("potluck.builder.prepare.require_trackers", lambda *_, **__: None)
    return put


@pytest.fixture
def recipe(tiny_models):
    models = dict.fromkeys(("one", "two"), tiny_models["small"])
    log = {"to": ["wandb"], "wandb_mode": "offline"}
    evaluated = "evaluation.out_of_distribution=2"
    return lambda *overrides: tiny.recipe(models, evaluated, *overrides, log=log)


# Tracked by itself.


def test_a_tracker_hears_the_numbers_of_its_own_node_and_nothing_else(fake):
    heard, display = fake(), Hears()
    with Tracked(display, ["wandb"], [about("one"), about("two")]) as trackers:
        trackers.show(RoundDone("two", ROUND))
        trackers.show(Evaluated("one", EvaluationReport(5, validation=0.75)))
        trackers.show(Notice("well"))
        trackers.show(Alert("two", "silent", 5, "nothing came"))
    values = heard[2][3]
    assert heard == [
        ("one", "open"),
        ("two", "open"),
        ("two", "log", 3, values),
        ("one", "log", 5, {"evaluation/validation": 0.75}),
        ("two", "alert", 5, "two: silent", "nothing came"),
        ("one", "close", False),
        ("two", "close", False),
    ]
    assert display.said == []
    expected = {"reward/mean": 0.5, "loss": -0.25, "missing": 1, "sources/one/k3": 2.0}
    assert {name: values[name] for name in expected} == expected
    assert not {"round", "reward/own", "filtered_share"} & set(values)  # what is None is no point


def test_one_that_fails_is_left_behind_with_one_line_and_the_others_go_on(fake):
    fake(name="trackio")
    heard, display = fake(("log",)), Hears()
    with Tracked(display, ["wandb", "trackio"], [about("one")]) as trackers:
        trackers.show(RoundDone("one", ROUND))
        trackers.show(RoundDone("one", replace(ROUND, round=4)))
    (said,) = display.said
    assert said.startswith("wandb failed for node 'one' (no space left for log); the run goes on")
    told = [what[1:3] for what in heard]
    # The one that broke, its end, and the other one's two rounds.
    assert told == [
        *([("open",)] * 2),
        *[("log", 3), ("close", True), ("log", 3), ("log", 4), ("close", False)],
    ]


def test_one_that_cannot_even_be_closed_costs_nothing_more(fake):
    heard, display = fake(("log",), ("close",)), Hears()
    with Tracked(display, ["wandb"], [about("one")]) as trackers:
        trackers.show(RoundDone("one", ROUND))
    assert len(display.said) == 1
    with Tracked(display, ["wandb", "wandb"], [about("one"), about("two")]):  # named twice
        heard.clear()
    assert [what[:2] for what in heard] == [("one", "close"), ("two", "close")]
    assert display.said[1:] == [
        f"wandb of node {node!r} did not close (no space left for close)" for node in ("one", "two")
    ]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_ends_the_start_of_one_closes_those_that_are_open(fake, monkeypatch, error):
    def fails(about):
        raise error("no space left\nfor open")

    heard = fake()
    monkeypatch.setitem(TRACKERS, "trackio", fails)
    wanted = PotluckError if error is OSError else error
    with pytest.raises(wanted, match=r"^no space|trackio does not start for node 'one': no space"):
        Tracked(Hears(), ["wandb", "trackio"], [about("one")]).__enter__()
    assert heard == [("one", "open"), ("one", "close", True)]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_after_an_error_they_are_closed_and_know_it(fake, error):
    heard = fake()
    with pytest.raises(error), Tracked(Hears(), ["wandb"], [about("one"), about("two")]):
        raise error
    assert heard[2:] == [("one", "close", True), ("two", "close", True)]


# In a run.


def test_one_that_did_not_start_can_be_taken_out_and_the_run_goes_on(recipe, tmp_path, fake):
    fake(("open",))
    with pytest.raises(PotluckError, match="go on with --resume"):
        run(recipe(), tmp_path / "run")
    assert run(recipe("log.to=[]"), tmp_path / "run", resume=True).rounds == 2


# What the recipe says, looked at before anything is written.


def test_the_recipe_knows_the_trackers_that_there_are():
    assert LogConfig().to == ()
    (choices, _) = get_args(LogConfig.__annotations__["to"])
    assert set(get_args(choices)) == set(TRACKERS)


@pytest.mark.parametrize("name", TRACKERS)
def test_a_library_that_is_not_here_is_one_line(recipe, monkeypatch, name):
    monkeypatch.setattr(tracked, "find_spec", lambda asked: None if asked == name else object())
    config = recipe(f"log.to=['{name}']")
    with pytest.raises(PotluckError, match=rf"not here; pip install 'potluck\[{name}\]', or"):
        check(config)


def test_wandb_without_an_account_is_one_line_unless_it_is_offline(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(tracked.libraries, "has_credentials", lambda: False)
    tracked.require_trackers(["wandb"], wandb_mode="offline")
    tracked.require_trackers(["tensorboard"], wandb_mode="online")
    with pytest.raises(PotluckError, match="knows no account here; call `wandb login`, or set"):
        run(recipe("log.wandb_mode=online"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# The table of completions.


def test_an_episode_that_is_recorded_has_its_messages_as_a_chat_has_them(tmp_path):
    one = NewCompletions(replace(about("small", tmp_path), completions=2))
    old = played(round=2, author="small", said=["old"])
    new = [completion(3, author, at) for author in ("large", "small") for at in (1, 2)]
    append(tmp_path / "small" / "completions.jsonl", old, played(round=3, author="small"), *new)
    maze = recorded(3, 1.0, question="Walk.", problem="maze/train/1")
    others = (recorded(3, 1.0, index=at) for at in (1, 2))
    append(tmp_path / "small" / "recorded.jsonl", maze, *others)
    assert [(row["round"], row["index"]) for row in one.rows(3)] == [(3, 0), (3, 1)]
    episode, answer = (recording.messages for recording in one.recorded(3))
    call = {"name": "add", "arguments": {"a": 1, "b": "é"}}
    assert episode == [
        {"role": "user", "content": "Walk."},
        {"role": "assistant", "content": "north"},
        {"role": "user", "content": "#####\n#.@G#\n#####"},
        {
            "role": "assistant",
            "content": "I add.",
            "tool_calls": [{"type": "function", "function": call}],
        },
        {"role": "tool", "content": "2"},
    ]
    assert [message["content"] for message in answer] == ["1+2=", "3"]
