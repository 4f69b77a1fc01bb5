"""Episodes of an OpenAI-compatible endpoint: conversations, their costs, and what can go wrong."""

import json
import threading
from dataclasses import replace

import pytest

from episodes import Here, Walk
from potluck.episode import Turn, digest_of, turns_in
from potluck.rollout.base import RolloutRequest
from potluck.rollout.texts.base import Cost
from potluck.rollout.texts.endpoint import messages_of, turn_in
from potluck.rollout.texts.openai import BYTES_COUNTED, TOKENS_AROUND, TOKENS_OF_TOOLS
from potluck.types import Observation, Problem, Sampling
from stand_in_chat import StandInChat, author_of, stand_in_chat

TOOLS = json.dumps([{"type": "function", "function": {"name": "add", "parameters": {}}}])
PROBLEMS = [Problem("p0", "one?", "1"), Problem("p1", "two?", "2", "Be brief.", TOOLS)]


def call(arguments, name="add", id="server's"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


class Player(StandInChat):
    """Writes ``turns`` in turn, by how many a conversation has; a dict is a whole message."""

    def __init__(self):
        super().__init__()
        self.turns, self.finishes = ["a", "b", "x"], {}

    def answer(self, path, body):
        status, answer = super().answer(path, body)
        if status == 200 and path == "/v1/chat/completions" and isinstance(answer, dict):
            at = sum(each["role"] == "assistant" for each in body["messages"])
            turn, choice = self.turns[at], answer["choices"][0]
            choice["message"] = turn if isinstance(turn, dict) else {"content": turn}
            choice["finish_reason"] = self.finishes.get(at, "stop")
        return status, answer


@pytest.fixture
def server():
    with stand_in_chat(Player) as server:
        yield server


@pytest.fixture
def author(server, tmp_path):
    def make(environment=None, **options):
        environment = environment or Here(Walk)
        options = {"most": 64, "sampling": Sampling(0.7)} | options
        made = author_of(server, tmp_path, environment=environment, **options)
        made.environment = environment
        return made

    return make


def write(author, count=2, seed=1, problems=PROBLEMS, progress=lambda done, total: None):
    requests = [RolloutRequest(problem, count) for problem in problems]
    return author.write(requests, author="north", seed=seed, progress=progress)


def said(completion):
    return [turn.content for turn in turns_in(completion.text)]


# What is asked, and what comes of it.


def test_an_episode_is_a_conversation_with_the_environment(server, author):
    made, progress = author(), []
    written = write(made, progress=lambda *pair: progress.append(pair))
    assert [(c.problem_id, c.index) for c in written.completions] == [
        *[("p0", 0), ("p0", 1)],
        *[("p1", 0), ("p1", 1)],
    ]
    for c in written.completions:
        assert (said(c), c.end, c.turns, len(c.token_T)) == (["a", "b", "x"], "stop", (0, 0, 0), 0)
        problem = PROBLEMS[c.problem_id == "p1"]
        told = made.environment.replay(problem, turns_in(c.text)).observations
        assert c.observed == digest_of(told[0]) + digest_of(told[1])
    assert made.environment.replays == 0  # it was kept, as it was played to its end
    assert made.environment.opened[0].closed
    assert progress[-1] == (4, 4)
    assert written.cost == Cost(12, 120, 60)


def test_a_request_has_all_messages_the_tools_and_a_seed_of_its_own(server, author):
    write(author(), count=1, problems=PROBLEMS[1:])
    first, second, third = server.asked()
    begin = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "two?"}]
    assert first["messages"] == begin
    heard = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "a+1" * 2}]
    assert second["messages"] == begin + heard
    assert third["messages"][: len(begin) + 2] == second["messages"]
    assert len({body["seed"] for body in server.asked()}) == 3
    assert all(body["tools"] == json.loads(TOOLS) and "n" not in body for body in server.asked())
    server.seen.clear()
    write(author(), count=1, problems=PROBLEMS[:1])
    assert not any("tools" in body for body in server.asked())


def test_calls_and_their_answers_go_back_under_ids_of_our_own(server, author):
    server.turns = [{"content": None, "tool_calls": [call('{"b": 1}'), call("")]}, "x"]
    server.finishes = {0: "tool_calls"}

    class Calls(Here):
        def open(self):
            return two_answers(super().open())

    (got,) = write(author(Calls(Walk)), count=1, problems=PROBLEMS[1:]).completions
    turn = turns_in(got.text)[0]
    assert [(c.name, c.arguments) for c in turn.calls] == [("add", {"b": 1}), ("add", {})]
    *_, assistant, one, other = server.asked()[1]["messages"]
    assert assistant["content"] is None
    ids = [each["id"] for each in assistant["tool_calls"]]
    assert assistant["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"b": 1}'}
    assert [(m["role"], m["tool_call_id"], m["content"]) for m in (one, other)] == [
        ("tool", ids[0], "2"),
        ("tool", ids[1], "3"),
    ]
    assert all(len(id) == 9 and id.isalnum() for id in ids)


def two_answers(play):
    heard = play.answered
    play.answered = lambda wait_s: [
        (number, replace(step, observations=(Observation("2", "add"), Observation("3", "add"))))
        for number, step in heard(wait_s)
    ]
    return play


def test_the_ends_are_those_of_every_engine(server, author):
    server.turns = ["a"] * 9
    (got,) = write(author(Here(Walk, max_turns=2)), 1, problems=PROBLEMS[:1]).completions
    assert (got.end, said(got), len(got.observed)) == ("turns", ["a", "a"], 2)
    server.finishes = {1: "length"}
    made = author()
    (got,) = write(made, 1, problems=PROBLEMS[:1]).completions
    assert (got.end, said(got), len(got.observed)) == ("length", ["a", "a"], 2)
    assert made.environment.played[got.problem_id, '[["a",[]]]']  # the cut turn was not acted on
    server.finishes, size = {}, len('[["a",[]],["a",[]]]')
    made = author(most=size // BYTES_COUNTED)
    (got,) = write(made, 1, problems=PROBLEMS[:1]).completions
    assert (got.end, said(got), len(got.observed)) == ("room", ["a", "a"], 2)
    left = [body["max_tokens"] for body in server.asked()[-2:]]
    assert left == [size // BYTES_COUNTED, size // BYTES_COUNTED - len('[["a",[]]]') // 4]


def test_concurrency_is_the_number_of_conversations_that_are_open(server, author):
    problems = [Problem(f"p{i}", "?", "") for i in range(6)]
    server.stalls, made = threading.Event(), author(concurrency=3)
    most = []

    def progress(done, total):
        if server.busy == 3:
            server.stalls.set()
        most.append(len(made.environment.opened[0].open) if made.environment.opened else 0)

    assert len(write(made, count=2, problems=problems, progress=progress).completions) == 12
    assert server.busiest == 3
    assert max(most) == 3


def test_one_slow_environment_holds_up_no_other_conversation(server, author):
    environment = Here(Walk, holds={"p0": threading.Event()})
    made = author(environment)

    def progress(done, total):
        if done == 2:
            environment.holds["p0"].set()

    written = write(made, progress=progress)
    assert len(written.completions) == 4


# What is no episode.

UNUSABLE = [
    {"content": "", "tool_calls": [call("{a")]},
    {"content": "", "tool_calls": [call("[1]")]},
    {"content": "", "tool_calls": [call('{"a":' + "[" * 5000 + "]" * 5000 + "}")]},
    {"content": "", "tool_calls": [call('{"a": 1e999}')]},
    {"content": "", "tool_calls": [call('{"a": "\\ud800"}')]},
    {"content": "\ud800"},
    {"content": "", "tool_calls": [{"function": {"arguments": "{}"}}]},
    {"content": None},
    {"content": [{"type": "text", "text": "x"}]},
]


def test_an_episode_with_a_turn_that_is_none_is_left_out_told_and_paid(server, author):
    assert not any(map(turn_in, UNUSABLE))
    server.turns = ["a", UNUSABLE[0]]
    made = author()
    written = write(made, count=1)
    assert (written.completions, written.cost) == ((), Cost(4, 40, 20))
    (news,) = made.news
    assert news.startswith("2 episodes of 'north' are left out (a turn says nothing, or calls a")


def test_a_filtered_turn_is_none_and_one_of_too_many_bytes_is_none(server, author):
    server.finishes = {1: "content_filter"}
    assert write(author(), count=1).completions == ()
    server.finishes, server.turns = {}, ["a" * 200, "x" * 2000]
    made = author()
    assert write(made, count=1).completions == ()
    assert "2 episodes of 'north' are left out (longer than 64 tokens can be)" in made.news[0]


@pytest.mark.parametrize("at, requests", [(0, 3), (2, 5)])
def test_an_episode_whose_environment_fails_is_left_out_and_told(server, author, at, requests):
    made = author(Here(Walk, fails={"p1": at}))
    written = write(made, count=1)
    assert [c.problem_id for c in written.completions] == ["p0"]
    assert written.cost.requests == requests
    assert made.news[0].startswith("1 episodes of 'north' are left out (")
    assert not made.environment.opened[0].open


# What it costs.


def test_a_request_is_booked_at_the_most_that_all_its_messages_can_cost(server, author):
    server.usage = None
    (problem,) = problems = PROBLEMS[1:]
    written = write(author(), count=1, problems=problems)
    prompts = [body["messages"] for body in server.asked()]
    around = TOKENS_AROUND + TOKENS_OF_TOOLS + len(problem.tools)
    most = sum(len(json.dumps(messages)) + around for messages in prompts)
    longest = sum(body["max_tokens"] for body in server.asked())
    assert written.cost == Cost(3, most, longest, booked=3)


def test_a_broken_off_episode_is_not_sent_and_stays_paid(server, author):
    made = author(budget_tokens=30, concurrency=1)
    written = write(made)
    assert [said(c) for c in written.completions] == []
    assert written.cost == Cost(2, 20, 10)
    assert "the budget of 'north' is spent" in made.news[0]
    server.statuses, made = [], author(concurrency=1)
    server.twist = lambda answer: server.statuses.append(500) or answer
    written = write(made)
    assert written.completions == ()
    assert written.cost.completion_tokens == 5
    assert "does not write now (status 500" in made.news[0]


def test_after_a_crash_no_turn_is_bought_again(server, author):
    made = author(run="one", concurrency=1)

    def press(done, total):
        if done >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(made, count=6, progress=press)
    assert made.environment.opened[0].closed
    bought = len(server.asked())
    assert 6 <= bought < 36
    written = write(author(run="one"), count=6)
    assert len(written.completions) == 12
    asked = [json.dumps(body, sort_keys=True) for body in server.asked()]
    # What was under way when it broke off is asked once more.
    assert len(asked) - len(set(asked)) <= 1
    assert 36 <= len(asked) <= 37


def test_a_parameter_that_is_refused_is_left_out_in_the_same_conversation(server, author):
    server.refuses = {"seed": "extra inputs are not permitted: 'seed'"}
    assert len(write(author(concurrency=1)).completions) == 4
    assert sum("seed" in body for body in server.asked()) == 1


# Turns as messages.


def test_what_a_message_says_comes_back_from_the_turn():
    message = {"role": "assistant", "content": "a", "tool_calls": [call('{"b": [1, null]}')]}
    (got,) = messages_of(turn_in(message), (), 7)
    assert got["content"] == "a"
    assert turn_in(got) == turn_in(message)
    assert turn_in({"content": "a", "tool_calls": [call({"b": 1})]}).calls[0].arguments == {"b": 1}
    assert turn_in({"content": "a", "reasoning_content": "hidden"}) == Turn("a")
