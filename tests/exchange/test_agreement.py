"""What a node's batches say of themselves, and which it takes from others."""

from dataclasses import replace

import pytest

from nouns import completion, prompt_digest, terms, text_only
from potluck.exchange import WireError, decode, encode
from potluck.exchange.wire.codec import Limits


def from_south(*problems, round=3, **changes):
    theirs = terms("south", **changes)
    batch = tuple(completion(author="south", problem=problem) for problem in problems or ("p",))
    return theirs.message(round, batch)


def test_a_message_says_who_wrote_it_of_what_and_how():
    message = from_south("p", "q", "p", temperature=0.5)
    assert (message.run, message.round, message.sender) == ("run", 3, "south")
    assert message.provenance == terms(temperature=0.5).provenance
    assert list(message.prompts) == ["p", "q"]
    assert message.prompts["p"] == terms().prompt_digest("p") != message.prompts["q"]


@pytest.mark.parametrize(
    "message, reason, why",
    [
        (from_south(run="other"), "other run",
         "'south' for round 3 of 'other' came where that of 'south' for"),
        (from_south(round=2), "other round",
         "for round 2 of 'run' came where that of 'south' for ro"),
        (terms("west").message(3, ()), "forged", "a message of 'west' for round 3"),
        (from_south(tokenizer=b"x"), "other tokenizer",
         r"has a tokenizer with fingerprint 782e.*, and 'north' on"),
        (from_south(task=b"x"), "other task",
         r"'south' is at a task of digest 782e.*, and 'north' at 6b2e"),
        (from_south(temperature=0.5), "other sampling",
         r"samples with temperature 0.5, but this run has 1; set \["),
        (from_south(top_k=5), "other sampling", "samples with top_k 5, but this run has 0"),
        (from_south(top_p=0.9), "other sampling", "samples with top_p 0.9, but this run has 1"),
    ],
)  # fmt: skip
def test_what_was_made_on_other_terms_is_refused_with_both_values(message, reason, why):
    with pytest.raises(WireError, match=why) as caught:
        terms("north").accept("south", 3, message)
    assert caught.value.reason == reason


# Nodes of unlike tokenizers, and nodes without one.

ALIKE, UNLIKE, NONE = b"t", b"u", b""
"""Tokenizers: the reader's, another one, and none."""


def another(problem_id):
    """A digest of another system prompt, question or chat template."""
    return prompt_digest(problem_id) and b"another."


def sent(tokenizer, form, *, prompt=prompt_digest, messages=None, problem="p"):
    """The message of an author with that tokenizer, in the form "ids", "ids and texts" or "texts".

    ``prompt`` and ``messages`` make the author's digests; without ``messages`` they are the
    reader's, so that a prompt may differ by its template alone."""
    theirs = terms(
        "south", tokenizer=tokenizer, digest=prompt, asked=messages or terms().question_digest
    )
    ids = completion(author="south", problem=problem)
    batch = {
        "nothing": (),
        "ids": (ids,),
        "ids named": (replace(ids, tokenizer=theirs.provenance.tokenizer),),
        "ids and texts": (replace(ids, text="5", tokenizer=theirs.provenance.tokenizer),),
        "texts": (text_only("5", author="south", problem=problem),),
    }
    # As it comes: questions are on the wire or they are not.
    return decode(encode(theirs.message(3, batch[form])))


TAKEN = {
    "ids of the same tokenizer": (ALIKE, sent(ALIKE, "ids")),
    "with texts, behind another template": (ALIKE, sent(ALIKE, "ids and texts", prompt=another)),
    "texts beside another tokenizer's ids": (ALIKE, sent(UNLIKE, "ids and texts")),
    "another tokenizer's ids that no text says": (ALIKE, sent(UNLIKE, "ids named")),
    "texts of an author without a tokenizer": (ALIKE, sent(NONE, "texts")),
    "nothing of another tokenizer": (ALIKE, sent(UNLIKE, "nothing")),
    # What has no tokenizer learns from nobody, and takes all that is of its run.
    "by an author: ids behind another template": (NONE, sent(ALIKE, "ids", prompt=another)),
    "by an author: texts": (NONE, sent(NONE, "texts")),
}


@pytest.mark.parametrize("name", TAKEN)
def test_completions_are_taken_as_ids_of_the_same_tokenizer_or_as_texts(name):
    tokenizer, message = TAKEN[name]
    assert terms("north", tokenizer=tokenizer).accept("south", 3, message) == message.completions


OTHER_PROMPT = (
    "asked 'p' with a prompt of digest 616e6f.*; nodes need one question, system prompt and"
)
OTHER_MESSAGES = (
    "asked 'p' with messages of digest 616e6f.*, which here has .*; nodes need one question"
)
WAY_OUT = (
    "^'south' has a tokenizer with fingerprint 752e.*, and 'north' one with 742e.*, but only token "
    r"ids came; set \[swarm\] text = 'always' on both sides, or take models of one tokenizer$"
)
NOWHERE = "sent problem 'nowhere/1', which the task has not"
UNKNOWN = {"problem": "nowhere/1"} | dict.fromkeys(("prompt", "messages"), lambda id: b"whatever")
REFUSED = {
    "ids behind another template": (ALIKE, sent(ALIKE, "ids", prompt=another), OTHER_PROMPT),
    "ids of another tokenizer": (ALIKE, sent(UNLIKE, "ids", prompt=another), WAY_OUT),
    "other messages": (ALIKE, sent(ALIKE, "ids and texts", messages=another), OTHER_MESSAGES),
    "by an author": (NONE, sent(UNLIKE, "ids and texts", messages=another), OTHER_MESSAGES),
    "another task's problem": (ALIKE, sent(ALIKE, "ids", **UNKNOWN), NOWHERE),
    "read by an author": (NONE, sent(NONE, "texts", **UNKNOWN), NOWHERE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_be_read_neither_as_ids_nor_as_texts_is_refused_with_the_way_out(name):
    tokenizer, message, why = REFUSED[name]
    with pytest.raises(WireError, match=why) as caught:
        terms("north", tokenizer=tokenizer).accept("south", 3, message)
    assert caught.value.reason == ("other tokenizer" if why == WAY_OUT else "other task")


def test_digests_of_the_messages_are_told_where_there_are_texts():
    assert sent(ALIKE, "ids").questions == {}
    assert sent(ALIKE, "ids and texts").questions == {"p": terms().question_digest("p")}
    assert sent(NONE, "texts").prompts == {"p": b""}


def test_a_node_cannot_send_what_its_own_task_has_not():
    with pytest.raises(ValueError, match="the task has no problem 'nowhere/1'"):
        from_south("nowhere/1")


def test_texts_beyond_half_of_a_message_do_not_go():
    def made(text, tokens=()):
        return replace(completion(tokens or (1,), author="north"), text=text, index=next(indices))

    indices = iter(range(9))
    own = terms(limits=Limits(message_bytes=200))
    texts = [made("a" * 60), made("b" * 50), made("c" * 40)]
    only = [replace(c, token_T=c.token_T[:0], logp_T=None) for c in texts]
    assert [c.text for c in own.message(0, tuple(texts)).completions] == ["a" * 60, None, "c" * 40]
    assert [c.text for c in own.message(0, tuple(only)).completions] == ["a" * 60, "c" * 40]
