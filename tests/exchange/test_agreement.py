"""What a node's batches say of themselves, and which it takes from others."""

from dataclasses import replace

import pytest

from nouns import completion, terms
from potluck.exchange import Agreement, WireError
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


def test_what_was_made_on_the_same_terms_is_taken():
    message = from_south("p", "q")
    assert terms("north").accept("south", 3, message) == message.completions


def test_the_kind_of_model_may_differ():
    message = from_south(model=b"larger")
    assert terms("north").accept("south", 3, message) == message.completions


@pytest.mark.parametrize(
    "message, reason, why",
    [
        (
            from_south(run="other"),
            "other run",
            "'south' for round 3 of 'other' came where that of 'south' for",
        ),
        (
            from_south(round=2),
            "other round",
            "for round 2 of 'run' came where that of 'south' for ro",
        ),
        (terms("west").message(3, ()), "forged", "a message of 'west' for round 3"),
        (
            from_south(tokenizer=b"x"),
            "other tokenizer",
            r"has a tokenizer with fingerprint 782e.*, and 'north' on",
        ),
        (
            from_south(task=b"x"),
            "other task",
            r"'south' is at a task of digest 782e.*, and 'north' at 6b2e",
        ),
        (
            from_south(temperature=0.5),
            "other sampling",
            r"samples with temperature 0.5, but this run has 1; set \[",
        ),
        (from_south(top_k=5), "other sampling", "samples with top_k 5, but this run has 0"),
        (from_south(top_p=0.9), "other sampling", "samples with top_p 0.9, but this run has 1"),
        (
            from_south(digest=lambda id: b"another."),
            "other task",
            "asked 'p' with a prompt of digest 616e6f",
        ),
        (
            from_south("nowhere/1", digest=lambda id: b"whatever"),
            "other task",
            "'nowhere/1', which this task ha",
        ),
    ],
)
def test_what_was_made_on_other_terms_is_refused_with_both_values(message, reason, why):
    with pytest.raises(WireError, match=why) as caught:
        terms("north").accept("south", 3, message)
    assert caught.value.reason == reason


def test_a_node_cannot_send_what_its_own_task_has_not():
    with pytest.raises(ValueError, match="the task has no problem 'nowhere/1'"):
        from_south("nowhere/1")


def test_terms_are_a_value():
    one = terms()
    assert isinstance(one, Agreement)
    assert replace(one) == one != replace(one, limits=Limits(completions=1))
