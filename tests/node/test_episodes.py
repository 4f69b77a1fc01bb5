"""Episodes of any author as a node reads them: played again in its own environment, or left out."""

from dataclasses import replace
from itertools import accumulate
from typing import get_args

import numpy as np
import pytest

import tiny
import unlike
from episodes import Here, Walk
from node.test_trust import learner_of
from nouns import completion
from potluck.config import SamplingConfig
from potluck.episode import EnvironmentFailed, Turn, acted, digest_of, text_of, transcript, turns_in
from potluck.exchange import Round
from potluck.node import selection as reading
from potluck.node.learning.batch import pack
from potluck.node.learning.learner import silent
from potluck.node.report import report_of
from potluck.node.selection import BY_REPLAY, NotReplayed, Replays, Selection, UnreadReason, read
from potluck.types import Completion, Group, Problem, Row

PROBLEM = Problem("p", "1+2=", "3")
LIMITS = SamplingConfig(max_new_tokens=30, max_total_tokens=60)
FAR = SamplingConfig(max_new_tokens=400, max_total_tokens=900)
POLICY = tiny.policy()
"""Read with only."""
WALK = ("ab", "c", "dex")
"""Turns that end the game of ``episodes.Walk``."""


def played(contents=WALK, end="stop", *, policy=POLICY, author="south", problem=PROBLEM):
    """An episode as the model that wrote it has it, by hand; nothing is said of its text."""
    parts = [[*policy.ids_of(Turn(content)), policy.stop_id] for content in contents]
    if end == "length":
        parts[-1].pop()
    game, digests, turns = Here(Walk), b"", [Turn(content) for content in contents]
    for said in game.replay(problem, acted(turns, end)).observations[: len(turns) - 1]:
        digests += digest_of(said)
    ids = [id for part in parts for id in part]
    return Completion(
        problem.id, author, 0, np.int32(ids), np.full(len(ids), -0.5, np.float32), end,
        turns=tuple(map(len, parts)), observed=digests.ljust(2 * len(turns) - 2, b"?"),
    )  # fmt: skip


def at_home(environment=None):
    return Replays(environment or Here(Walk), "north")


def reason(c, environment=None, *, policy=POLICY, limits=LIMITS, **options):
    return read(c, PROBLEM, policy, limits, replays=at_home(environment), **options)


def spelled(policy, row):
    """All that the model reads, as text; / for a stop token."""
    ids, done = row.prompt_P.tolist(), 0
    for at, heard in row.observed:
        ids += [*row.token_T[done:at].tolist(), *heard.tolist()]
        done = at
    stop = policy.tokenizer.decode([policy.stop_id])
    whole = policy.tokenizer.decode(
        ids + row.token_T[done:].tolist(), clean_up_tokenization_spaces=False
    )
    return whole.replace(stop, "/").replace("<bos>", "")


def test_a_row_has_what_its_own_environment_said_before_each_turn():
    sent = played()
    row = reason(sent, needs_logp=True)
    assert spelled(tiny.policy(), row) == "1+2=ab/ab+1ab+1ab+1c/c+2c+2dex/"
    assert [at for at, _ in row.observed] == [3, 5]
    assert row.token_T is row.completion.token_T
    assert (row.text, row.completion.text) == ("ab\nc\ndex", text_of([*map(Turn, WALK)]))
    assert row.completion == replace(sent, text=row.completion.text)
    assert reason(replace(sent, text=row.completion.text)).observed[1][1].dtype == np.int32


@pytest.mark.parametrize("name", ["think tags", "SentencePiece-like, bytes"])
def test_turns_of_another_tokenizer_are_spelled_in_ones_own(name):
    policy, other = unlike.policy(name), unlike.policy(unlike.NAMES[0])
    contents = ("the answer", "so 12 add", "x then")
    sent = replace(
        played(contents, policy=other), tokenizer=other.tokenizer_digest,
        text=text_of([*map(Turn, contents)]),
    )  # fmt: skip
    row = reason(sent, policy=policy, limits=FAR)
    spelled_here = [[*policy.ids_of(Turn(content)), policy.stop_id] for content in contents]
    assert row.token_T.tolist() == [id for part in spelled_here for id in part]
    assert [*row.completion.turns] == [*map(len, spelled_here)]
    assert row.token_T.tolist() != sent.token_T.tolist()
    assert [at for at, _ in row.observed] == [*accumulate(row.completion.turns)][:-1]
    assert (row.completion.text, row.completion.logp_T) == (sent.text, None)
    bare = replace(sent, token_T=np.zeros(0, np.int32), logp_T=None, turns=(0, 0, 0), tokenizer=b"")
    same = reason(bare, policy=policy, limits=FAR)
    assert same.completion == row.completion
    cut = replace(bare, end="length", observed=played(contents, "length", policy=other).observed)
    short = reason(cut, policy=policy, limits=FAR)
    assert np.array_equal(short.token_T, row.token_T[:-1])


def with_turns(c, *lengths):
    return replace(c, turns=lengths, observed=b"??" * (len(lengths) - 1))


def told(c, *turns, tokenizer=b"another"):
    return replace(c, text=text_of([*map(Turn, turns)]), tokenizer=tokenizer)


CUT_SHORT = played(WALK[:2], "room")


@pytest.mark.parametrize(
    ("sent", "environment", "expected"),
    [
        (completion((5, tiny.STOP)), None, "no episode"),
        (played(), Here(Walk, grade="own"), "own environment"),
        (played(), Here(Walk, fails={"p": 2}), "environment failed"),
        (replace(played(), observed=b"????"), None, "other observation"),
        (replace(played(), observed=played().observed[:2] + b"?!"), None, "other observation"),
        (replace(played(), end="turns"), None, "other end"),
        (replace(CUT_SHORT, end="stop"), None, "other end"),
        (CUT_SHORT, Here(Walk, max_turns=2), "other end"),
        (played(), Here(Walk, max_turns=2), "other end"),
        (played(("x", "a", "b"), "room"), None, "other end"),
        (played(("x", "a"), "length"), None, "other end"),
        (with_turns(played(), 2, 3, 4), None, "stop token"),
        (replace(played(), end="length"), None, "stop token"),
        (replace(played(WALK, "length"), end="stop"), None, "stop token"),
        (played(("a" * 40, "x")), None, "too long"),
        (told(played(), "ab", "c", "de", tokenizer=b""), None, "inexact text"),
        (replace(told(played()), text=None), None, "no text"),
        (replace(told(played()), text="ab c dex"), None, "inexact text"),
        (told(played(), "ab", "cdex"), None, "inexact text"),
        (told(played(("a", "b"), "length"), "a", ""), None, "stop token"),
    ],
)  # fmt: skip
def test_what_is_not_so_here_has_its_reason(sent, environment, expected):
    assert reason(sent, environment) == expected
    assert expected in get_args(UnreadReason)


def test_every_reason_of_a_replay_is_tried_above_and_below():
    (mark,) = test_what_is_not_so_here_has_its_reason.pytestmark
    assert {expected for *_, expected in mark.args[1]} | {"replay time"} >= {*get_args(NotReplayed)}
    assert {*BY_REPLAY} < {*get_args(NotReplayed)}


@pytest.mark.parametrize(
    ("sent", "environment"),
    [
        (played(), Here(Walk, max_turns=3)),
        (CUT_SHORT, None),
        (replace(CUT_SHORT, end="turns"), Here(Walk, max_turns=2)),
        (played(("ab", "x"), "length"), None),
        (played(("x",), "length"), Here(Walk, max_turns=1)),
    ],
)
def test_every_end_is_read_where_it_is_so(sent, environment):
    row = reason(sent, environment)
    assert isinstance(row, Row)
    assert len(row.observed) == len(sent.turns) - 1


def test_what_is_refused_by_its_shape_is_not_replayed():
    assert read(played(), PROBLEM, POLICY, LIMITS) == "no episode", "there is no environment"
    environment = Here(Walk, max_turns=2)
    for sent in (played(), with_turns(played(), 9), played(("a" * 40, "x"))):
        reason(sent, environment)
    assert environment.replays == 0
    policy = tiny.policy()
    policy.ids_of = None  # nor are more turns spelled than were sent
    assert reason(told(played(), *"ab" * 99), environment, policy=policy) == "inexact text"


def test_ones_own_episodes_of_a_grade_own_are_read():
    environment, turns = Here(Walk), [*map(Turn, WALK)]
    environment.replay(PROBLEM, turns)
    environment.grade = "own"
    assert isinstance(reason(played(author="north"), environment), Row)
    assert reason(played(), environment) == "own environment"
    other = played(("ab", "x"), author="north")
    assert reason(other, environment) == "environment failed"


def test_an_author_of_slow_episodes_has_its_time_and_nobody_elses(monkeypatch):
    now_s = [0.0]

    class Slow(Here):
        def replay(self, problem, turns, written=None, **limits):
            now_s[0] += 11.0
            if len(turns) == 1:
                raise EnvironmentFailed("it hung")
            return super().replay(problem, turns)

    monkeypatch.setattr(reading, "perf_counter", lambda: now_s[0])
    replays = at_home(Slow(Walk))

    def found(sent):
        row = read(sent, PROBLEM, tiny.policy(), LIMITS, replays=replays)
        return row if isinstance(row, str) else "read"

    sent = [played(), played(("x",)), played(), played(), played()]
    of_liar = [found(each) for each in sent]
    assert of_liar == ["read", "environment failed", "read", "replay time", "replay time"]
    assert found(played(author="east")) == "read"
    own = [found(played(author="north")) for _ in range(5)]
    assert own == ["read"] * 5


def test_slow_authors_together_have_a_bound_and_each_other_one_a_little(monkeypatch):
    now_s, bounds_s = [0.0], []

    class Sleeping(Here):
        def replay(self, problem, turns, written=None, *, within_s):
            bounds_s.append(within_s)
            now_s[0] += min(within_s, 25.0)
            if within_s < 25.0:
                raise EnvironmentFailed("cut off")
            return super().replay(problem, turns)

    monkeypatch.setattr(reading, "perf_counter", lambda: now_s[0])
    replays = at_home(Sleeping(Walk))

    def found(sent):
        row = read(sent, PROBLEM, tiny.policy(), LIMITS, replays=replays)
        return row if isinstance(row, str) else "read"

    slow = [f"slow-{at}" for at in range(63)]
    reasons = [[found(played(author=name)) for _ in range(3)] for name in slow]
    assert reasons[0] == ["read", "replay time", "replay time"]
    assert reasons[-1] == ["replay time"] * 3
    assert bounds_s[:2] == [30.0, 5.0]
    assert now_s[0] == 4 * 30.0 + 59 * 2.0
    assert found(played(author="north")) == "read"  # its own


class WithCalls(Here):
    def replay(self, problem, turns, written=None, **limits):
        calls = sum(len(turn.content) for turn in turns)
        return replace(super().replay(problem, turns), calls=calls, errors=turns[0].content == "ab")


def test_each_figure_of_an_authors_episodes_is_what_a_plain_loop_finds():
    policy, replays = tiny.policy(), Replays(WithCalls(Walk), "north")
    written = {"south": [played(), CUT_SHORT], "north": [played(("ax",)), played(("b", "x"))]}
    rows = [
        read(replace(c, author=name, index=at), PROBLEM, policy, LIMITS, replays=replays)
        for name, of in sorted(written.items())
        for at, c in enumerate(of)
    ]
    groups = [Group(PROBLEM, tuple(rows), (1.0, 0.0, 1.0, 0.0))]
    update = learner_of(policy, tiny.f_tis()).learn(pack(groups), silent)
    unread = {("south", "other end"): 1, ("south", "replay time"): 2, ("south", "no text"): 9,
              ("east", "other end"): 7}  # fmt: skip
    selection = Selection((), 0, unread, 0, 0, 0, 0)
    made = 0, "north", groups, update, {}, selection, Round(())
    sources = report_of(*made).sources

    def told(author):
        names = "turns_mean", "calls_mean", "call_error_share", "cut_share", "replay_refused_share"
        return [getattr(sources[author], name) for name in names]

    # 3 and 2 turns; 2 + 1 + 3 and 2 + 1 letters, and an "ab" in both; one of two is cut; 3 of 5.
    assert told("south") == [2.5, 4.5, 2 / 9, 0.5, 0.6]
    assert told("north") == [1.5, 2.0, 0.0, 0.0, 0.0]
    assert {*sources} == {"north", "south"}
    groups[0] = replace(groups[0], rows=tuple(replace(row, episode=None) for row in rows))
    sources = report_of(*made).sources
    assert told("south") == [None] * 5
    assert transcript(turns_in(rows[2].completion.text), rows[2].episode)[:2] == [
        {"role": "assistant", "content": "ab"}, {"role": "user", "content": "ab+1ab+1ab+1"},
    ]  # fmt: skip


def test_a_refused_episode_has_its_authors_replays_begin_anew():
    environment = Here(Walk)
    replays = Replays(environment, "me")
    assert isinstance(
        read(played(author="south"), PROBLEM, tiny.policy(), LIMITS, replays=replays), Row
    )
    assert environment.begun_anew == []
    liar = replace(played(author="west"), observed=b"\xff" * 4)
    assert read(liar, PROBLEM, tiny.policy(), LIMITS, replays=replays) == "other observation"
    assert environment.begun_anew == ["west"]
