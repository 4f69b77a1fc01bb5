"""Solutions from a file: which are given for a problem, and what a line can have wrong."""

import bz2
import gzip
import json
import lzma
import os
import random

import pytest
import zstandard

from episodes import Here, Walk
from potluck.episode import ToolCall, Turn, digest_of, turns_in
from potluck.rollout.base import EngineSettings, RolloutError, RolloutRequest
from potluck.rollout.texts import file as file_module
from potluck.rollout.texts.base import BYTES_A_TOKEN, Cost
from potluck.rollout.texts.options import FileOptions
from potluck.types import Problem


def problem(i):
    return Problem(f"sum/train/{i}", f"What is {i} + {i}?", str(2 * i))


def line(i, *solutions, key=None):
    solution = list(solutions) if len(solutions) > 1 else solutions[0]
    return json.dumps({"problem": key or problem(i).question, "solution": solution})


@pytest.fixture
def author(tmp_path):
    """An author of a file of these lines, with its news as ``author.news``."""

    def make(*lines, max_new_tokens=16, environment=None, stop_texts=(), **options):
        path = tmp_path / "solutions.jsonl"
        path.write_bytes("\n".join(lines).encode(errors="surrogateescape"))
        news = []
        settings = EngineSettings(
            max_new_tokens, max_new_tokens, node="north", folder=tmp_path,
            environment=environment, notify=news.append, stop_texts=stop_texts,
        )  # fmt: skip
        made = FileOptions(path=str(path), **options).open(settings)
        made.news = news
        return made

    return make


def write(author, *problems, count=4, seed=0, progress=lambda done, total: None):
    requests = [RolloutRequest(problem, count) for problem in problems]
    written = author.write(requests, author="north", seed=seed, progress=progress)
    assert written.cost == Cost()
    return written.completions


def texts(completions):
    return [c.text for c in completions]


# What is given.


def test_a_problem_gets_its_solutions_and_no_others(author):
    made = author(line(1, "one"), line(2, "two", "deux"), line(3, "three"), line(1, "un"))
    seen, problems = [], (problem(2), problem(9), problem(1))
    written = write(made, *problems, progress=lambda *pair: seen.append(pair))
    assert [(c.problem_id, c.index, c.text) for c in written] == [
        ("sum/train/2", 0, "two"),
        ("sum/train/2", 1, "deux"),
        ("sum/train/1", 0, "one"),
        ("sum/train/1", 1, "un"),
    ]
    for c in written:
        assert (c.author, c.end, c.logp_T, len(c.token_T)) == ("north", "stop", None, 0)
    assert seen == [(2, 12), (2, 12), (4, 12)]
    assert made.file.solved(problems) == 2


def test_a_stop_text_ends_a_solution_which_keeps_it(author):
    made = author(line(1, "4 + 4\n\nso 8", "8"), stop_texts=("\n\n", "so"))
    assert texts(write(made, problem(1))) == ["4 + 4\n\n", "8"]
    assert {c.end for c in write(made, problem(1))} == {"stop"}


def test_a_problem_is_named_by_its_id_or_by_its_question_without_spaces_around(author):
    made = author(
        line(1, "by id", key="sum/train/1"),
        line(1, "by question", key=" What is 1 + 1?\n"),
        line(1, "by neither", key="what is 1 + 1?"),
    )
    assert texts(write(made, problem(1))) == ["by id", "by question"]
    spaced = Problem("sum/train/1", "\nWhat is 1 + 1?  ", "2")
    assert texts(write(made, spaced)) == ["by id", "by question"]


@pytest.mark.parametrize("one_line", [True, False])
def test_of_more_solutions_than_are_asked_for_other_rounds_get_others(author, one_line):
    solutions = [f"s{i}" for i in range(10)]
    lines = [line(1, *solutions)] if one_line else [line(1, each) for each in solutions]
    made = author(*lines)
    given = [texts(write(made, problem(1), count=3, seed=seed)) for seed in range(20)]
    assert all(len(set(each)) == 3 and set(each) <= set(solutions) for each in given)
    assert {text for each in given for text in each} == set(solutions)
    assert given[0] == texts(write(made, problem(1), count=3, seed=0))
    assert sorted(texts(write(made, problem(1), count=10))) == sorted(solutions)
    assert write(made, problem(1), count=0) == ()


def test_the_keys_are_those_of_the_recipe(author):
    row = {"question": problem(1).question, "answer": "two", "problem": problem(2).question}
    made = author(json.dumps(row | {"solution": "four"}), problem="question", solution="answer")
    assert texts(write(made, problem(1), problem(2))) == ["two"]
    made = author(json.dumps(row | {"solution": "four"}))
    assert texts(write(made, problem(1), problem(2))) == ["four"]


def test_solutions_too_long_for_a_completion_are_left_out_and_told_once(author):
    most = BYTES_A_TOKEN
    lines = line(1, "x" * (most + 1), "y" * most), line(2, "z" * (most + 1))
    made = author(*lines, max_new_tokens=1)
    for _ in range(2):
        assert texts(write(made, problem(1), problem(2))) == ["y" * most]
    (news,) = made.news
    assert "has solutions, of 'sum/train/1' first, longer than 1 tokens can be" in news


def test_lines_of_any_length_end_and_content_are_found_again(author):
    """500 lines in random order, against a dictionary."""
    die, expected, lines = random.Random(0), {}, []
    for _ in range(500):
        who = die.randrange(80)
        text = "".join(die.choices('ab \u20ac\U0001f600\\"\n', k=die.randrange(1, 60))) + "."
        expected.setdefault(who, []).append(text)
        raw = json.dumps(
            {"problem": problem(who).question, "solution": text}, ensure_ascii=die.random() < 0.5
        )
        lines.append(raw + die.choice(["", "\r", "\n\n", "  "]))
    made = author("\ufeff" + lines[0], *lines[1:], max_new_tokens=99)
    for who in range(90):
        assert texts(write(made, problem(who), count=50)) == expected.get(who, [])


# What a file can have wrong.


GOOD = line(1, "fine")
NEEDED = r'expected \{"problem": a text, "solution": a text or a list of texts\}'
BAD_LINES = {
    "no JSON": ("nonsense", r"line 2 is 'nonsense', which is not JSON \(.*" + NEEDED),
    "half a pair": (r'{"problem": "\ud800", "solution": "x"}', "which is not JSON"),
    "no UTF-8": ('{"problem": "\udcff"}', "line 2 has byte 0xff, which is not UTF-8; save it as"),
    "a tower": ("[" * 100_000, "line 2 is '.*', which is not JSON"),
    "a list": ("[1]", r"line 2 is \[1\], without 'problem'"),
    "no problem": ('{"solution": "x"}', "without 'problem'; .*name other keys in .*engine"),
    "a blank problem": ('{"problem": " ", "solution": "x"}', "has ' ' as 'problem'"),
    "no texts": ('{"problem": "x", "solution": []}', r"has \[\] as 'solution'"),
    "a blank text": ('{"problem": "x", "solution": ["a", ""]}', r"has \['a', ''\] as 'solution'"),
    "a deep text": ('{"problem": "x", "solution": [["a"]]}', r"has \[\['a'\]\] as 'solution'"),
}


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_line_that_is_wrong_is_named_with_what_was_expected(author, bad):
    raw, message = BAD_LINES[bad]
    with pytest.raises(RolloutError, match=message) as caught:
        author(GOOD, raw, GOOD)
    said = str(caught.value)
    assert "solutions.jsonl, line 2 " in said
    assert "\n" not in said
    assert len(said) < 700


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
def test_a_packed_file_is_read_and_bounded(tmp_path, monkeypatch, pack):
    path = tmp_path / "solutions"
    path.write_bytes(pack(f"{GOOD}\n{GOOD}\n".encode()))
    assert FileOptions(path=str(path)).read().solved([problem(1)]) == 1
    monkeypatch.setattr(file_module, "MOST_BYTES", len(GOOD))
    with pytest.raises(RolloutError, match=r"has more than \d+ bytes; give fewer"):
        FileOptions(path=str(path)).read()


OTHER_FORMS = {
    "parquet": (b"PAR1", "is a parquet file; write its rows as JSON lines; expected JSON lines in"),
    "gzip that is cut": (
        gzip.compress(GOOD.encode())[:-9],
        "is packed by gzip and cannot be unpack",
    ),
    "nothing": (b"", r"is empty \(0 bytes\)"),
    "a page": (b"<!doctype html><html>", "is a page of HTML and not the data"),
    "pretty-printed": (json.dumps({"problem": "x"}, indent=1).encode(), "line 1 begins JSON that"),
    "a list over lines": (
        b"[\n" + GOOD.encode() + b"\n]",
        "line 1 begins JSON that goes on in other",
    ),
    "a list": (f"[{GOOD}]".encode(), "line 1 is a list of 1 objects; expected one object a line"),
}


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_a_file_in_another_form_is_named_for_what_it_is(tmp_path, form):
    content, message = OTHER_FORMS[form]
    path = tmp_path / "solutions.jsonl"
    path.write_bytes(content)
    with pytest.raises(RolloutError, match=message) as caught:
        FileOptions(path=str(path)).read()
    assert "is not JSON" not in str(caught.value)


def test_a_line_of_just_the_longest_size_is_read(author):
    empty = len(line(1, "x")) - 1
    longest = line(1, "x" * (2**20 - empty))
    assert len(longest) == 2**20
    assert author(longest, max_new_tokens=2**15).file.solved([problem(1)]) == 1
    with pytest.raises(RolloutError, match="more than 1048576 bytes"):
        author(longest.replace("x", "xx", 1))


def test_an_empty_file_is_refused(author):
    with pytest.raises(RolloutError, match=r'holds no solution; expected lines of \{"problem": '):
        author("", " ", "\t\r")


def test_more_than_there_is_memory_for_is_refused(author, monkeypatch):
    monkeypatch.setattr(file_module, "MOST_BYTES", 2 * len(GOOD) + 1)
    author(GOOD, GOOD)
    with pytest.raises(RolloutError, match=r"has more than \d+ bytes; give fewer"):
        author(GOOD, GOOD, GOOD)


def test_what_is_no_file_is_refused_at_the_start_and_before(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "pipe", ""):
        options = FileOptions(path=str(tmp_path / name))
        for act in (options.read, lambda o=options: o.require_ready(adapter=False, longest=1)):
            with pytest.raises(RolloutError, match=r"there is no file .*expected JSON lines in"):
                act()


def test_a_file_of_the_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "s.jsonl").write_text(GOOD)
    options = FileOptions(path="~/s.jsonl")
    options.require_ready(adapter=False, longest=1)
    assert options.read().solved([problem(1)]) == 1


# Episodes.


def played(i, turns):
    return json.dumps({"problem": problem(i).question, "turns": turns})


CALL = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
AS_MESSAGES = [
    {"role": "user", "content": "walk"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "1"},
    {"role": "assistant", "content": "x"},
]
AS_TURNS = [["", [["add", {"a": 1}]]], ["x", []]]


@pytest.mark.parametrize("turns", [AS_TURNS, AS_MESSAGES], ids=["turns", "messages"])
def test_an_episode_is_played_here_for_its_end_and_digests(author, turns):
    environment = Here(Walk)
    (got,) = write(author(played(1, turns), environment=environment), problem(1))
    assert turns_in(got.text) == (Turn("", (ToolCall("add", {"a": 1}),)), Turn("x"))
    assert (got.end, got.turns, len(got.token_T)) == ("stop", (0, 0), 0)
    said = environment.replay(problem(1), turns_in(got.text)).observations
    assert got.observed == digest_of(said[0])


def test_an_episode_that_does_not_end_is_left_out_and_told_but_for_one_without_turns_left(author):
    lines = played(1, [["a", []]]), played(1, [["a", []], ["b", []], ["c", []]]), played(2, [["x"]])
    environment = Here(Walk, max_turns=3, fails={"sum/train/2": 1})
    made = author(*lines, environment=environment)
    (got,) = write(made, problem(1), problem(2))
    assert (got.index, got.end, got.turns, len(got.observed)) == (0, "turns", (0, 0, 0), 4)
    (news,) = made.news
    assert (
        "has solutions, of 'sum/train/1' first, that do not play to an end here; they are" in news
    )


BAD_TURNS = [
    *([], "x", [{}], [["a", [], 1]], [["a", [["f", "{}"]]]], [["a"], {}]),
    [{"role": "user", "content": "a"}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}],
]


@pytest.mark.parametrize("turns", BAD_TURNS, ids=repr)
def test_turns_that_are_none_are_named_with_what_was_expected(author, turns):
    with pytest.raises(RolloutError, match=r"line 1 has .* as 'turns'; expected .*or of messages"):
        author(played(1, turns))


def test_a_file_has_turns_where_the_task_has_an_environment_and_only_there(author):
    turns, text = played(1, AS_TURNS), line(1, "one")
    for lines, environment, said in (
        ((turns,), None, "has lines with turns; this task wants no turns"),
        ((text,), Here(Walk), "has lines with solution; this task wants turns alone"),
        ((text, turns), Here(Walk), "has lines with solution and turns; .*wants turns alone"),
        ((text, turns), None, "has lines with solution and turns; .*wants no turns"),
    ):
        with pytest.raises(RolloutError, match=said):
            author(*lines, environment=environment)
