"""Texts of an OpenAI-compatible endpoint: the contract, what it costs, and what can go wrong."""

import json
import logging
import os
import socket
import threading
from dataclasses import asdict
from functools import partial

import pytest

from potluck.fields import ConfigError
from potluck.rollout.base import RolloutError, RolloutRequest
from potluck.rollout.texts.base import BYTES_A_TOKEN, Cost
from potluck.rollout.texts.endpoint import read_answer
from potluck.rollout.texts.openai import TOKENS_AROUND
from potluck.rollout.texts.options import OpenAIOptions
from potluck.types import Problem, Sampling
from stand_in_chat import author_of, stand_in_chat

PROBLEMS = [Problem("p0", "one?", "1"), Problem("p1", "two?", "2", "Be brief.")]
BOTH_BYTES = len("one?") + len("two?Be brief.")
MOST_OF_ONE = len("one?") + TOKENS_AROUND, 3 * 8
ALL = [(problem.id, i) for problem in PROBLEMS for i in range(3)]
DRAWING = Sampling(0.7, top_p=0.9)
SOON = {"Retry-After": "0.01"}


@pytest.fixture
def server():
    with stand_in_chat() as server:
        yield server


@pytest.fixture
def author(server, tmp_path):
    return partial(author_of, server, tmp_path, most=8, sampling=DRAWING)


def write(author, count=3, seed=None, progress=lambda done, total: None, problems=PROBLEMS):
    """Write one round; without a seed that of the author's next one."""
    seed = author.round = seed or author.round + 1
    requests = [RolloutRequest(problem, count) for problem in problems]
    return author.write(requests, author="north", seed=seed, progress=progress)


def texts(written):
    return [(c.problem_id, c.index, c.text) for c in written.completions]


# What is asked, and what comes of it.


def test_texts_come_in_order_without_tokens_or_log_probabilities(server, author):
    server.stalls, seen = threading.Event(), []

    def progress(done, total):
        seen.append((done, total))
        server.stalls.set()

    written = write(author(), progress=progress)
    assert [c[:2] for c in texts(written)] == ALL
    for c in written.completions:
        assert (c.author, c.end, c.logp_T, len(c.token_T)) == ("north", "stop", None, 0)
        assert c.text.startswith({"p0": "one?", "p1": "two?"}[c.problem_id])
    assert (seen[0], seen[-1]) == ((0, 6), (6, 6))
    first, second = sorted(server.asked(), key=lambda body: len(body["messages"]))
    assert first["messages"] == [{"role": "user", "content": "one?"}]
    assert second["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "two?"},
    ]
    for body in (first, second):
        seed = body.pop("seed")
        assert 0 <= seed < 2**31
        assert body.keys() == {"messages", "model", "n", "max_tokens", "temperature", "top_p"}
        told = (body["model"], body["n"], body["max_tokens"], body["temperature"], body["top_p"])
        assert told == ("teacher", 3, 8, 0.7, 0.9)


def test_one_seed_asks_for_the_same_and_another_for_other_texts(author):
    assert texts(write(author())) == texts(write(author()))
    assert texts(write(author())) != texts(write(author(), seed=2))


def test_nothing_is_asked_where_nothing_is_ordered(server, author):
    assert write(author(), count=0).completions == ()
    assert server.asked() == []


def test_what_a_server_that_ignores_n_leaves_out_is_asked_one_by_one(server, author):
    server.ignores_n = True
    made = author()
    written = write(made)
    assert [c[:2] for c in texts(written)] == ALL
    assert len({c.text for c in written.completions}) == 6  # so each has a seed of its own
    assert [body.get("n") for body in server.asked()] == [3, 3, None, None, None, None]
    server.seen.clear()
    assert len(write(made, seed=2).completions) == 6
    assert [body.get("n") for body in server.asked()] == [None] * 6  # it has learned that


def test_more_choices_than_were_asked_for_are_left_out(server, author):
    server.twist = lambda answer: answer | {"choices": answer["choices"] * 5}
    assert len(write(author()).completions) == 6


@pytest.mark.parametrize(
    "name, said, news",
    [
        ("max_tokens", "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'", []),
        ("top_p", "Unsupported parameter: 'top_p' is not supported with this model", ["top_p"]),
        ("n", "Only one completion choice is allowed", []),  # so each is asked for by itself
    ],
)
def test_a_parameter_that_the_model_does_not_take_is_left_out_from_then_on(
    server, author, name, said, news
):
    server.refuses, made = {name: said}, author()
    for _ in range(2):
        assert len(write(made).completions) == 6
    assert sum(name in body for body in server.asked()) <= 2
    assert all(("max_completion_tokens" in b) != ("max_tokens" in b) for b in server.asked())
    assert len(made.news) == len(news)
    assert all(f"takes no {name}" in line for line, name in zip(made.news, news, strict=True))


def test_a_refused_question_does_not_end_the_asking_for_several_at_once(server, author):
    made = author()
    write(made)
    server.refuses = {"messages": "this question is not allowed"}
    assert write(made).completions == ()
    assert len(made.news) == 1
    assert "does not answer some questions (status 400: " in made.news[0]
    server.refuses = {}
    server.seen.clear()
    write(made)
    assert [body["n"] for body in server.asked()] == [3, 3]


def test_concurrency_is_the_number_of_requests_under_way(server, author):
    problems = [Problem(f"p{i}", "?", "") for i in range(6)]
    server.stalls = threading.Event()

    def progress(done, total):
        if server.busy >= 3:
            server.stalls.set()

    write(author(concurrency=3), problems=problems, progress=progress)
    assert server.busiest == 3


# What is no completion.


@pytest.mark.parametrize("reason", ["content_filter", 7])
def test_an_end_that_is_neither_a_stop_nor_a_limit_is_no_completion(server, author, reason):
    server.finish = reason
    made = author()
    written = write(made)
    assert written.completions == ()
    assert written.cost.completion_tokens == 30
    assert made.news == []
    server.finish = "length"
    assert {c.end for c in write(made).completions} == {"length"}


BAD_TEXTS = {
    "null": None,
    "parts": [{"type": "text", "text": "4"}],
    "a number": 4,
    "empty": "",
    "blank": " \n",
    "half a pair": "a\ud800",
    "long": "x" * (BYTES_A_TOKEN * 8 + 1),
    "long in bytes": "\u20ac" * (BYTES_A_TOKEN * 8 // 3 + 1),
}


def test_texts_that_are_none_are_left_out_and_the_others_of_their_answer_are_kept(server, author):
    def twist(answer):
        for choice, bad in zip(answer["choices"][1:-1], BAD_TEXTS.values(), strict=True):
            choice["message"]["content"] = bad
        return answer

    server.twist = twist
    written = write(author(), count=len(BAD_TEXTS) + 2).completions
    kept = [(c.problem_id, c.index, c.text[-1]) for c in written]
    assert kept == [(id, *last) for id in ("p0", "p1") for last in ((0, "0"), (1, "9"))]


def test_a_stop_text_ends_a_text_which_keeps_it_whatever_the_server_says_of_its_end(server, author):
    def twist(answer):
        said = [("4\n\nand on", "length"), ("4 and on", "length"), ("4", "stop")]
        for choice, (text, end) in zip(answer["choices"], said, strict=True):
            choice["message"]["content"], choice["finish_reason"] = text, end
        return answer

    server.twist = twist
    written = write(author(stop_texts=("\n\n",)), problems=PROBLEMS[:1]).completions
    assert [(c.text, c.end) for c in written] == [
        ("4\n\n", "stop"),
        ("4 and on", "length"),
        ("4", "stop"),
    ]


WHOLE = {"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}], "usage": None}
GARBAGE = {
    "no JSON": b"<html>busy</html>",
    "no UTF-8": b'{"choices": "\xff"}',
    "a tower": b"[" * 50_000,
    "no message": b'{"choices": [{"finish_reason": "stop"}]}',
    "a count below 0": b'{"choices": [], "usage": {"prompt_tokens": -5, "completion_tokens": 1}}',
    "a giant count": b'{"choices": [], "usage": {"prompt_tokens": %s, "completion_tokens": 1}}'
    % (b"9" * 5000),
}
ENDLESS = json.dumps(WHOLE).encode() + b" " * 2**20


@pytest.mark.parametrize("garbage", [GARBAGE["no JSON"], ENDLESS])
def test_a_garbled_answer_is_told_counted_at_its_most_and_no_more_is_asked(server, author, garbage):
    server.twist = lambda answer: garbage
    made = author(concurrency=1)
    written = write(made)
    assert written.completions == ()
    assert written.cost == Cost(1, len("one?") + TOKENS_AROUND, 3 * 8, booked=1)
    (line,) = made.news
    assert line.startswith(f"{server.url} does not write now (its answer is not one of the prot")


def test_an_answer_that_was_packed_unasked_is_not_unpacked(server, author):
    server.packed = True
    assert write(author()).completions == ()


def test_what_is_no_answer_and_every_cut_of_one_is_refused():
    whole = json.dumps(WHOLE).encode()
    assert read_answer(whole).choices[0].message["content"] == "4"
    for garbage in (*(whole[:end] for end in range(len(whole))), *GARBAGE.values()):
        assert read_answer(garbage) is None


# When it is not there.


@pytest.mark.parametrize("status", [402, 408, 504, 524, 529])
def test_what_may_pass_leaves_a_round_empty_and_is_told_once_until_back(server, author, status):
    # Without money left (402) nothing is asked a second time.
    made = author(concurrency=1, retries=int(status == 402))
    for _ in range(2):
        server.statuses = [status]
        written = write(made)
        assert written.completions == ()
        may_go_on = status in (408, 504, 524)  # to write, and so to cost
        assert written.cost == (Cost(1, 104, 24, booked=1) if may_go_on else Cost(1))
        assert server.statuses == []
    assert len(made.news) == 1
    assert f"does not write now (status {status}: " in made.news[0]
    assert len(write(made).completions) == 6
    server.statuses = [status]
    write(made)
    assert len(made.news) == 2


@pytest.mark.parametrize("retries, cost", [(1, Cost(2)), (2, Cost(2 + 2, 60, 30))])
def test_a_busy_server_is_asked_again_as_often_as_the_recipe_says(server, author, retries, cost):
    """Each attempt is a request of its own in the books."""
    server.statuses, server.headers = [429, 500], SOON
    written = write(author(retries=retries, concurrency=1))
    assert written.cost == cost
    assert len(server.asked()) == cost.requests


def test_the_servers_retry_after_is_kept_to(server, author):
    """With a pause that is longer than ``timeout_s`` nothing is asked a second time."""
    server.statuses, server.headers = [429], {"Retry-After": "50"}
    made = author(retries=1, timeout_s=0.2, concurrency=1)
    assert write(made).completions == ()
    assert len(server.asked()) == 1
    assert "(no answer within 0.2 seconds)" in made.news[0]


def test_a_slow_server_is_waited_for_as_long_as_the_recipe_says_and_counted(server, author):
    server.stalls, made = threading.Event(), author(timeout_s=0.2)
    written = write(made)
    assert written.completions == ()
    assert written.cost == Cost(2, 2 * TOKENS_AROUND + BOTH_BYTES, 2 * 3 * 8, booked=2)
    assert "(no answer within 0.2 seconds)" in made.news[0]
    server.stalls.set()
    assert len(write(author(timeout_s=60)).completions) == 6


# When it refuses for good.


@pytest.mark.parametrize(
    "status, way_out",
    [
        (401, "name the variable that holds its key in api_key_variable"),
        (307, "redirects are not followed: set url to where it leads"),
        (400, "see its documentation"),
    ],
)
def test_a_refusal_ends_the_run_with_one_line(server, author, status, way_out):
    server.statuses, server.said = [status] * 9, b'{"error": {"message": "never\\n\\u001bheard"}}'
    server.headers = {"Location": "http://127.0.0.1:9/"}
    with pytest.raises(RolloutError) as caught:
        write(author())
    said = str(caught.value)
    assert said.startswith(f"{server.url} refuses to write as 'teacher' (status {status}: ")
    assert "never heard" in said
    assert way_out in said
    assert said.isprintable()
    assert len(said) < 700


def test_a_key_is_sent_and_is_never_told(server, author, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TEACHER_KEY", "sk-secret\n")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another-server")
    server.key = "sk-secret"
    made = author(api_key_variable="TEACHER_KEY")
    assert len(write(made).completions) == 6
    server.key = "sk-other"  # it repeats the wrong key in its refusal
    with pytest.raises(RolloutError, match=r"Incorrect API key provided: \(the key\)\); name the "):
        write(made)
    with pytest.raises(RolloutError) as caught:
        made.options.require_ready(adapter=False, longest=100)
    told = [str(caught.value), repr(caught.value), repr(made), str(vars(made)), caplog.text]
    assert "sk-secret" not in "".join([*told, *made.news])
    server.seen.clear()
    with pytest.raises(RolloutError):
        write(author())  # without a variable, no key of the environment is sent
    assert not any("authorization" in headers for _, headers, _ in server.seen)


@pytest.mark.parametrize("key", ["sk-a\nX: b", "schl\u00fcssel"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_told(author, monkeypatch, key):
    monkeypatch.setenv("TEACHER_KEY", key)
    with pytest.raises(RolloutError, match="'TEACHER_KEY' holds signs that no key has") as caught:
        write(author(api_key_variable="TEACHER_KEY"))
    assert key not in str(caught.value)
    monkeypatch.delenv("TEACHER_KEY")
    with pytest.raises(RolloutError, match="environment variable 'TEACHER_KEY', which is not set"):
        write(author(api_key_variable="TEACHER_KEY"))


# What it costs.


def with_budget(**options):
    return OpenAIOptions(**{"url": "https://host/v1", "model": "teacher"} | options)


def test_a_cost_by_hand_and_a_budget_that_it_reaches():
    priced = with_budget(usd_per_million_prompt=3.0, usd_per_million_completion=15.0)
    # 2000 * 3 / 1e6 + 100 * 15 / 1e6 = 0.006 + 0.0015
    assert priced.cost(2000, 100) == Cost(1, 2000, 100, pytest.approx(0.0075))
    assert not with_budget().spent("a", Cost(9, 9**9, 9**9, 9e9))
    tokens, usd = with_budget(budget_tokens=10), with_budget(budget_usd=0.5)
    assert [bool(tokens.spent("a", Cost(1, 5, n))) for n in (4, 5)] == [False, True]
    assert [bool(usd.spent("a", Cost(usd=n))) for n in (0.4, 0.5)] == [False, True]


def test_the_cost_of_a_round_is_what_the_server_counted(author):
    made = author(usd_per_million_prompt=1e6, usd_per_million_completion=2e6)
    # Two requests of three completions, each completion 10 and 5 tokens.
    assert write(made).cost == Cost(2, 60, 30, 60 * 1.0 + 30 * 2.0)
    assert made.books.spent == Cost(2, 60, 30, 120.0)


def test_a_spent_budget_ends_the_asking_and_is_told_once(server, author):
    """The first of two requests costs 45 tokens, the whole budget."""
    made = author(concurrency=1, budget_tokens=45)
    assert [c.problem_id for c in write(made).completions] == ["p0"] * 3
    assert len(server.asked()) == 1
    for _ in range(2):
        assert write(made).completions == ()
    assert len(server.asked()) == 1
    (line,) = made.news
    assert line.startswith("the budget of 'north' is spent (30 tokens of prompts, 15 of completi")


def test_a_budget_is_overshot_by_no_more_than_what_is_under_way(server, author):
    problems = [Problem(f"p{i}", "?", "") for i in range(9)]
    write(author(concurrency=4, budget_tokens=1), problems=problems)
    assert len(server.asked()) == 4  # their bookings are not what was spent


def test_what_was_spent_before_a_resume_counts(server, author, tmp_path):
    """In the cost.json of release 0.2.0, and in the books of this one."""
    author(run="old")
    cost = tmp_path / "old" / "north" / "cost.json"
    cost.write_text('{"requests":7,"prompt_tokens":80,"completion_tokens":20,"usd":0.0}')
    made = author(run="old", budget_tokens=100)
    assert write(made).completions == ()
    assert server.asked() == []
    assert len(made.news) == 1
    cost.unlink()  # the books hold it now
    assert write(author(run="old", budget_tokens=100)).completions == ()
    assert write(author(run="old", budget_tokens=101)).completions


def test_an_answer_that_is_cut_off_stays_booked_and_is_not_asked_for_again(server, author):
    server.cut, made = 20, author(retries=3, concurrency=2)
    assert write(made).cost == Cost(2, 2 * TOKENS_AROUND + BOTH_BYTES, 2 * 3 * 8, booked=2)
    assert len(server.asked()) == 2
    assert "not one of the protocol, too long or cut off" in made.news[0]


def test_a_request_that_never_left_costs_nothing(author):
    cost = write(author(url="http://127.0.0.1:9/v1", retries=1, concurrency=1)).cost
    assert cost == Cost(requests=2)


def test_a_connection_that_ends_without_a_status_is_asked_again_and_both_are_booked(author):
    """The first may have been billed before it was lost."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            for _ in range(2):
                listener.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        cost = write(author(url=url, retries=1), problems=PROBLEMS[:1]).cost
        thread.join()
    assert cost == Cost(2, 2 * MOST_OF_ONE[0], 2 * MOST_OF_ONE[1], booked=2)


def test_a_booking_is_on_disk_while_its_request_is_under_way(server, author, tmp_path):
    server.stalls, seen = threading.Event(), []

    def progress(done, total):
        if server.busy == 2 and not seen:
            seen.append(author(run="one").books.spent)  # as after SIGKILL
            assert json.loads(told.read_text())["booked"] == 2
            server.stalls.set()

    one, told = author(run="one"), tmp_path / "one" / "north" / "cost.json"
    write(one, progress=progress)
    assert seen == [Cost(2, 2 * TOKENS_AROUND + BOTH_BYTES, 2 * 3 * 8, booked=2)]
    assert author(run="one").books.spent == one.books.spent == Cost(2, 60, 30)
    assert json.loads(told.read_text()) == asdict(Cost(2, 60, 30))


def test_ctrl_c_keeps_what_is_under_way_booked_and_says_so(server, author):
    server.stalls, one = threading.Event(), author(run="one")

    def press(done, total):
        if server.busy == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(one, progress=press)
    assert author(run="one").books.spent == Cost(2, 2 * TOKENS_AROUND + BOTH_BYTES, 48, booked=2)
    (line,) = one.news
    assert line.startswith("2 requests of 'north' had no answer: they stay booked at the most")


def test_texts_that_came_before_a_crash_are_not_bought_again(server, author):
    whole = texts(write(author(), seed=7))
    server.seen.clear()
    server.twist = lambda answer: server.statuses.append(500) or answer  # one answer, then none
    first = write(author(run="one", concurrency=1), seed=7)
    assert texts(first) == whole[:3]
    server.twist, server.statuses = None, []
    made = author(run="one")
    again = write(made, seed=7)
    assert texts(again) == whole
    assert again.cost == Cost(1, 30, 15)
    assert [len(b["messages"]) for b in server.asked()] == [1, 2, 2]  # p0, and p1 twice
    server.seen.clear()
    assert texts(write(author(run="one"), seed=7)) == whole  # the round was not stored: all kept
    assert server.asked() == []
    assert len(texts(write(author(run="one"), seed=8))) == len(server.asked()) * 3 == 6


def test_kept_texts_are_used_for_the_request_they_were_bought_for_alone(server, author):
    server.models.append("other")
    write(author(run="one"), seed=7)
    second_name = server.url.replace("127.0.0.1", "localhost")
    drawing = {"sampling": Sampling(0.3)}
    for change in ({"model": "other"}, {"most": 5}, drawing, {"url": second_name}):
        server.seen.clear()
        assert len(texts(write(author(run="one", **change), seed=7))) == 6
        assert len(server.asked()) == 2
    server.seen.clear()
    swapped = write(author(run="one"), seed=7, problems=PROBLEMS[::-1])
    assert {c.text[:4] for c in swapped.completions if c.problem_id == "p1"} == {"two?"}
    assert len(server.asked()) == 2


def test_a_server_that_ignores_n_is_not_paid_again_after_a_crash(server, author):
    server.ignores_n, made = True, author(run="one")
    write(made)
    whole = write(made, seed=7)  # it is asked one by one from the start of this round
    server.seen.clear()
    assert texts(write(author(run="one"), seed=7)) == texts(whole)
    assert server.asked() == []


def test_the_books_are_one_line_and_the_round_under_way(server, author, tmp_path):
    made, sizes = author(run="one"), []
    for _ in range(4):
        write(made)
        sizes.append(len((tmp_path / "one" / "north" / "cost.log").read_bytes().splitlines()))
    assert sizes == [5] * 4
    assert author(run="one").books.spent == made.books.spent == Cost(8, 240, 120)


def test_a_torn_last_line_of_the_books_is_left_out_and_told(author, tmp_path):
    write(author(run="one"))
    file = tmp_path / "one" / "north" / "cost.log"
    whole = file.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    for end in (start + 1, len(whole) - 1):
        file.write_bytes(whole[:end])
        made = author(run="one")
        assert made.books.spent.booked == 1  # its answer is not in the books
        assert made.news == [f"the last line of {file} is cut off, as by a crash: it is left out"]
    write(made, seed=2)
    assert author(run="one").news == []


def test_damaged_books_are_named(author, tmp_path):
    write(author(run="one"))
    file = tmp_path / "one" / "north" / "cost.log"
    whole = file.read_bytes()
    for at in range(len(whole) - 1):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(RolloutError, match=rf"^{file} is damaged"):
            author(run="one")
    with pytest.raises(RolloutError, match=rf"^{file} is damaged \(.*; put back a copy, or delete"):
        author(run="one")
    file.unlink()
    (sums := tmp_path / "one" / "north" / "cost.json").write_bytes(b"{")
    with pytest.raises(RolloutError, match=rf"^{sums} is damaged"):
        author(run="one")


def test_a_disk_without_room_keeps_the_request_from_being_sent(server, author, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("potluck.rollout.texts.base.append", full)
    with pytest.raises(OSError, match="No space left"):
        write(author())
    assert server.asked() == []


# Before the start.


def ready(server, **options):
    options = {"url": server.url, "model": "teacher", "retries": 0} | options
    OpenAIOptions(**options).require_ready(adapter=False, longest=100)


@pytest.mark.parametrize("lists", [200, 404])
def test_a_model_that_is_not_listed_is_asked_for_a_few_tokens(server, lists):
    ready(server)
    assert server.asked() == []  # a model that is listed costs nothing
    server.models, server.lists = ["*", "x"], lists
    ready(server)
    (body,) = server.asked()
    assert body["max_tokens"] <= 16
    server.models = ["x"]
    with pytest.raises(RolloutError, match=r"refuses to write as 'teacher' \(status 404"):
        ready(server)


def test_a_model_that_wants_other_parameters_is_there_and_a_list_that_is_none_names_none(server):
    server.models, server.refuses = ["*", ["teacher"], None], {"max_tokens": "use another"}
    ready(server)
    assert len(server.asked()) == 1


def test_a_server_that_is_not_there_is_found_before_the_start(server):
    with pytest.raises(RolloutError, match=r"127.0.0.1:9/v1 does not answer .*is it running"):
        ready(server, url="http://127.0.0.1:9/v1")


@pytest.fixture
def closed(monkeypatch):
    """The address of a port where nothing listens, and no proxy in the environment."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_a_proxy_that_does_not_answer_is_named_and_the_way_around_it(
    server, author, closed, monkeypatch, name
):
    made = author(retries=0)
    monkeypatch.setenv(name, f"http://me:secret@{closed}")
    told = f"asked through the proxy http://{closed} of {name}: add 127.0.0.1 to no_proxy to ask"
    with pytest.raises(RolloutError, match=f"does not answer .*{told} it directly.*running") as no:
        ready(server)
    assert "secret" not in str(no.value)
    assert write(made).completions == ()
    assert told in made.news[0]
    assert "secret" not in made.news[0]
    monkeypatch.setenv("no_proxy", "localhost, 127.0.0.1")
    ready(server)


def test_an_answer_of_a_proxy_is_told_as_such(server, closed, monkeypatch):
    """It refuses what it does not know; the endpoint itself was never asked."""
    place = server.url.removesuffix("/v1")
    monkeypatch.setenv("http_proxy", place)
    with pytest.raises(
        RolloutError, match=rf"\(status .*, asked through the proxy {place} of http_p"
    ):
        ready(server, url="http://model.invalid/v1")
    monkeypatch.delenv("http_proxy")
    with pytest.raises(RolloutError, match="does not answer") as no:
        ready(server, url=f"http://{closed}/v1")
    assert "proxy" not in str(no.value)


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "ftp://127.0.0.1:9", "127.0.0.1:9:9"])
def test_a_proxy_of_another_kind_is_named(server, closed, monkeypatch, proxy):
    monkeypatch.setenv("all_proxy", proxy)
    message = rf"cannot be asked through a proxy \({proxy} of all_proxy: .*; give one that begins"
    with pytest.raises(RolloutError, match=message):
        ready(server)


def test_it_works_where_a_loop_already_runs_as_in_a_notebook(server, author):
    import asyncio

    async def cell():
        ready(server)
        return write(author())

    assert len(asyncio.run(cell()).completions) == 6


# The recipe.


@pytest.mark.parametrize(
    "engine, message",
    [
        ({"url": "ftp://x/v1"}, r"\[node.a.engine\] url is 'ftp://x/v1'; expected https://HOST/v1"),
        ({"url": "http://x:99999/v1"}, "expected https://HOST/v1"),
        ({"url": "https://me:secret@x/v1"}, "expected https://HOST/v1"),
        ({"url": "https://x/v1?key=1"}, "expected https://HOST/v1"),
        ({"url": "http://\u2603/v1"}, "expected https://HOST/v1"),
        ({"budget_usd": 5.0}, "budget_usd is 5, but no token has a price; set usd_per_million_p"),
    ],
)
def test_a_mistake_in_the_table_is_named(engine, message):
    with pytest.raises(ConfigError, match=message):
        with_budget(**engine).require_sense("node.a", dtype="float32", sampling=Sampling())
