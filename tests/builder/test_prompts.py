"""One look at the first prompt: what cannot be answered is refused, what is right is not."""

import copy
import json

import pytest

import tiny
from potluck.builder.checks import readers_of
from potluck.builder.exchange import _prompt_of
from potluck.builder.prompts import fault_of
from potluck.config import from_tree
from potluck.evaluation.request import variables_of
from potluck.model import LanguageModel, Reader
from potluck.tasks.grading import prompt_for_tags
from potluck.types import Problem

PLAIN = Problem("p", "1+2=", "3")
RIGHT = {
    "none": None,
    "plain": "{% for m in messages %}{{ m.content }}\n{% endfor %}",
    "chatml": "{% for m in messages %}{{ m.content }}<eos>{{ '\n' }}{% endfor %}assistant\n",
    "trim": "{% for m in messages %}<bos>{{ m.content | trim }}<eos>{% endfor %}a=",
}
WRONG = {
    "{{ messages | length }}": "lacks the question",
    "{{ messages[-1].content[:2] }}": "lacks the question",
    "{% for m in messages %}{{ m.content }}<eos>{% endfor %}": "ends in '<eos>'",
    "{% for m in messages %}{{ m.content }}<eos>{{ '\n' }}{% endfor %}": "ends in '<eos>'",
}


def reader(template, vocabulary=tiny.VOCABULARY):
    tokenizer = copy.deepcopy(tiny.tokenizer())
    tokenizer.chat_template = template
    return Reader(tokenizer, vocabulary=vocabulary, stop_ids=frozenset([tiny.STOP]))


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_prompt_has_no_fault(name):
    for question in ("1+2=", " 1 \n", "a {b}", "<b>1</b>", "é", "x" * 500):
        for system in ("", "add"):
            assert fault_of(reader(RIGHT[name]), Problem("p", question, "3", system)) == ""


@pytest.mark.parametrize("template", WRONG)
def test_a_prompt_that_cannot_be_answered_has_a_fault(template):
    assert WRONG[template] in fault_of(reader(template), PLAIN)


def test_an_id_beyond_the_embedding_is_named():
    assert "the model knows 20 tokens" in fault_of(reader(None, vocabulary=20), PLAIN)


def test_tags_that_are_special_tokens_are_refused_where_they_are_asked_for():
    made = reader(None)
    made.tokenizer.add_special_tokens({"additional_special_tokens": ["</think>"]})
    made = Reader(made.tokenizer, vocabulary=99, stop_ids=made.stop_ids)
    assert fault_of(made, PLAIN) == ""
    assert "asks for </think>" in fault_of(made, Problem("p", "1", "", prompt_for_tags("a")))


def test_two_nodes_of_one_model_ask_with_their_own_template_variables(tmp_path):
    model = tiny.save(tmp_path / "model")
    file = tmp_path / "model" / "tokenizer_config.json"
    template = "{{ messages[-1].content }}{% if enable_thinking is false %}={% endif %}"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": template}))

    off = {"model": model, "chat_template_kwargs": {"enable_thinking": False}}
    nodes = {"on": {"model": model}, "off": off, "same": off}
    run = from_tree({"name": "r", "task": {"name": "digits"}, "node": nodes})
    readers = readers_of(run)
    assert readers["off"] is readers["same"]

    right = {"on": "1+2=", "off": "1+2=="}
    for name, text in right.items():
        variables = run.node[name].chat_template_kwargs
        policy = LanguageModel.load(model, device="cpu", variables=variables)
        assert readers[name].asked(PLAIN).text == text
        assert policy.asked(PLAIN).text == text
        agreed = readers[name].prompt(PLAIN).astype("<i4").tobytes()
        assert _prompt_of(run.node[name])(PLAIN) == agreed

    alone = from_tree({"name": "r", "task": {"name": "digits"}, "node": {"off": off}})
    assert dict(variables_of(alone, model)) == {"enable_thinking": False}
