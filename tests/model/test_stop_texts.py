"""Texts that end a completion, whose borders are not those of tokens: read, sent and graded."""

import copy
import random
from dataclasses import replace

import numpy as np
import pytest

import unlike
from potluck.config import SamplingConfig
from potluck.model import LanguageModel, ModelError
from potluck.model.stop_texts import end_of_stop_text, graded_part
from potluck.node.selection import read
from potluck.rollout.texts.base import cut_at_stop_text
from potluck.types import Completion, Problem, Row

PROBLEM = Problem("p", "the sum of 2 and 3 is\n", "5")
LIMITS = SamplingConfig(max_new_tokens=400, max_total_tokens=512)
BYTE_LEVEL = [name for name in unlike.NAMES if name.startswith("byte-level")]


def stopping(name, *stop_texts):
    plain = unlike.policy(name)
    return LanguageModel(plain.network, plain.tokenizer, stop_texts=stop_texts)


def written(ids, end):
    logp_T = np.full(len(ids), -1.0, np.float32)
    return Completion("p", "north", 0, np.array(ids, np.int32), logp_T, end)


def text_alone(text, end):
    return Completion("p", "north", 0, np.zeros(0, np.int32), None, end, text)


@pytest.mark.parametrize(
    "text, stop_texts, kept, whole",
    [
        ("18\n\nQuestion", ["\n\n"], "18", "18\n\n"),
        ("18\n\nQuestion", ["Question", "\n"], "18", "18\n"),
        ("18\n\nQuestion", ["Question", "\n\n"], "18", "18\n\n"),
        ("a stop b stopped", ["stopped", "stop"], "a ", "a stop"),
        ("xab ab", ["b", "ab"], "x", "xab"),
        ("END", ["END"], "", "END"),
        ("aaab", ["aab"], "a", "aaab"),
        ("é¡x", ["¡"], "é", "é¡"),
        ("<answer>18</answer> So", ["</answer>"], "<answer>18</answer>", "<answer>18</answer>"),
        ("<a>1</a>\n<a>", ["\n", "</a>\n"], "<a>1</a>\n", "<a>1</a>\n"),
        ("1</ a>2", ["</ a>"], "1", "1</ a>"),
    ],
)
def test_the_text_that_is_whole_first_ends_it(text, stop_texts, kept, whole):
    assert graded_part(text, stop_texts) == graded_part(whole, stop_texts) == kept
    assert text[: end_of_stop_text(text, stop_texts)] == whole
    assert graded_part(whole[:-1], stop_texts) == whole[:-1], "no part of one ends anything"


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_what_one_tokenizer_stops_at_another_reads_as_a_whole_answer(name):
    lot, author = random.Random(name), stopping(name, "second", "\n\n")
    readers = [stopping(each, "second", "\n\n") for each in BYTE_LEVEL]
    seen = set()
    for _ in range(300):
        ids = author.encode(author.prompt(PROBLEM), unlike.plain_text(lot) + "\n\nx" * 3)
        over = next(t for t in range(1, len(ids) + 1) if author.holds_stop_text(ids[:t]))
        own = written(ids[:over], "stop")
        row = read(own, PROBLEM, author, LIMITS)
        assert isinstance(row, Row)
        assert not any(stop in row.text for stop in author.stop_texts)

        sent = author.spelled(own, PROBLEM, most_bytes=1000)
        seen.add(sent.text.endswith("second"))
        assert sent.text.endswith(author.stop_texts)
        for reader in readers:
            there = read(sent, PROBLEM, reader, LIMITS)
            assert there.text == row.text
            if reader.tokenizer_digest == author.tokenizer_digest:
                assert there.token_T.tolist() == own.token_T.tolist()
            else:
                read_there = reader.tokenizer.decode(there.token_T)
                assert read_there == sent.text, "and no stop token behind"
    assert seen == {True, False}


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_a_token_that_says_more_than_the_stop_text_is_kept_and_its_rest_is_not_sent(name):
    author = stopping(name, "app")
    prompt_P = author.prompt(PROBLEM)
    plain = author.encode(prompt_P, "12 apples")
    over = next(t for t in range(1, len(plain) + 1) if author.holds_stop_text(plain[:t]))
    own = written(plain[:over], "stop")
    assert read(own, PROBLEM, author, LIMITS).token_T.tolist() == plain[:over]
    assert author.answer(PROBLEM, own.token_T) == "12 "
    assert author.said(own, PROBLEM) == "12 app"


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_an_end_that_is_none_is_refused(name):
    reader = stopping(name, "\n\n")
    prompt_P = reader.prompt(PROBLEM)
    whole, begun = (reader.encode(prompt_P, text) for text in ("12\n\n", "12"))
    stop = reader.stop_id

    def found(ids, end):
        row = read(written(ids, end), PROBLEM, reader, LIMITS)
        return row if isinstance(row, str) else "read"

    assert found(whole, "stop") == found([*begun, stop], "stop") == found(begun, "length") == "read"
    assert found(whole, "length") == "stop text", "it would have ended there"
    assert found([*whole, stop], "stop") == "stop text", "nothing may follow one"
    assert found([*whole, *begun], "stop") == "stop text"
    assert found(begun, "stop") == "stop text", "neither token nor text has ended it"
    for text, end in [("12\n\n3", "stop"), ("12\n\n3", "length"), ("12\n\n", "length")]:
        assert read(text_alone(text, end), PROBLEM, reader, LIMITS) == "stop text"

    plain = unlike.policy(name)
    assert read(written(whole, "stop"), PROBLEM, plain, LIMITS) == "stop token"
    row = read(text_alone("12\n\n3", "stop"), PROBLEM, plain, LIMITS)
    assert row.text == "12\n\n3"


@pytest.mark.parametrize("name", unlike.NAMES)
def test_without_a_stop_text_nothing_is_read_otherwise(name):
    plain, stopping_there = unlike.policy(name), stopping(name, "never written")
    lot = random.Random(3)
    for _ in range(50):
        answer = text_alone(unlike.text(lot), "stop")
        rows = [read(answer, PROBLEM, each, LIMITS) for each in (plain, stopping_there)]
        if isinstance(rows[0], str):
            assert rows[0] == rows[1]
        else:
            assert rows[0].token_T.tolist() == rows[1].token_T.tolist()


def test_ids_of_a_peer_that_are_no_text_are_no_crash():
    reader = stopping(BYTE_LEVEL[0], "\n")
    lot = random.Random(5)
    for _ in range(200):
        ids = [lot.randrange(reader.vocabulary) for _ in range(lot.randint(1, 6))]
        for end in ("stop", "length"):
            row = read(replace(written(ids, end), author="south"), PROBLEM, reader, LIMITS)
            assert isinstance(row, str | Row)


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_a_special_token_within_hides_nothing_from_the_grade(name):
    reader = stopping(name, "\n\n")
    line, no, pad = (
        reader.encode(reader.prompt(PROBLEM), text) for text in ("\n", "no, 6 or 7", "5")
    )
    special = reader.tokenizer.convert_tokens_to_ids("<pad>")
    hidden = [*pad, *line, special, *line, *no]
    row = read(written([*hidden, reader.stop_id], "stop"), PROBLEM, reader, LIMITS)
    assert row.text == "5\n\nno, 6 or 7"
    stop = reader.encode(reader.prompt(PROBLEM), "\n\n")
    ended = read(written([*hidden, *stop], "stop"), PROBLEM, reader, LIMITS)
    assert ended.text == "5\n\nno, 6 or 7"


# One that lower-cases loses the space between words.
@pytest.mark.parametrize("name", [name for name in unlike.NAMES if name != "lower-casing"])
def test_an_answer_that_begins_with_a_stop_text_is_empty_for_all_who_read_it(name):
    reader = stopping(name, " 5")
    row = read(text_alone(" 5", "stop"), PROBLEM, reader, LIMITS)
    assert isinstance(row, str) or row.text == ""


def test_a_text_that_was_cut_within_what_a_prompt_opens_is_refused():
    plain = unlike.policy(BYTE_LEVEL[0])
    tokenizer = copy.deepcopy(plain.tokenizer)
    tokenizer.chat_template = "{{ messages[-1].content }}<think>{{ '\\n' }}"
    reader = LanguageModel(plain.network, tokenizer, stop_texts=["\n"])
    assert reader.opening(PROBLEM) == "<think>\n"
    assert read(text_alone("<think>\n", "stop"), PROBLEM, reader, LIMITS) == "stop text"
    row = read(text_alone("<think>\nso\n", "stop"), PROBLEM, reader, LIMITS)
    assert row.text == "<think>\nso"
    assert cut_at_stop_text("<think>\nso\n5", "length", ["\n"]) == ("<think>\nso\n", "stop")


def test_the_name_of_a_special_token_is_no_stop_text():
    with pytest.raises(
        ModelError, match=r"stop_texts has 'x<eos>', but '<eos>' is a special token"
    ):
        stopping(BYTE_LEVEL[0], "x<eos>")
