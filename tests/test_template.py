"""Chat templates of strangers: each prompt as transformers makes it, or a line that says why."""

import copy
from unittest import mock

import pytest

import tiny
from potluck import template
from potluck.confined import Confined, NotReady
from potluck.model import ModelError
from potluck.model.prompt import prompt_ids
from potluck.types import Problem

PROBLEM = Problem("p", '1+2= "é" <b>\n', "3", system="add\n")
HONEST = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m.content | trim }}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'a=' }}{% endif %}",
    "json": "{{ messages | tojson(indent=1) }}{{ tools is none }}{{ messages[0].missing }}"
    "{{ bos_token }}",
}
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
BEYOND = "more than 0.25 s or 1 GiB"
HOSTILE = {
    "{{ 9 ** (9 ** 9) }}": BEYOND,
    "{{ 'x' * 3000000000 }}": BEYOND,
    "{{ 'x' * 3000000 }}": "a prompt of 3000000 bytes",
    "{{ ''.__class__.__mro__[1].__subclasses__()() }}": "SecurityError: ",
    "{{ messages.append(1) }}": "SecurityError: ",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "RecursionError: ",
    "{{ raise_exception('one\ntwo') }}": "TemplateError: one",
    "{{ '\\ud800' }}": "UnicodeEncodeError: ",
}


@pytest.fixture(scope="module", autouse=True)
def soon():
    """Templates may compute for a quarter of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(template, "CPU_LIMIT_S", 0.25)
        template._worker.cache_clear()
        yield
    template._worker.cache_clear()


def chatty(text):
    made = copy.deepcopy(tiny.tokenizer())
    made.chat_template, made.name_or_path = text, "a/model"
    return made


def prompt_of(made, question="1+2="):
    return prompt_ids(made, Problem("p", question, "3"))


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_template_makes_the_prompt_that_transformers_makes(name):
    made = chatty(HONEST[name])
    given = {"conversation": PROBLEM.messages, "add_generation_prompt": True}
    expected = made.apply_chat_template(**given, return_dict=False)
    assert prompt_ids(made, PROBLEM).tolist() == expected
    text = made.apply_chat_template(**given, tokenize=False)
    assert template.render(made.chat_template, PROBLEM.messages, made.special_tokens_map) == text


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_template_is_bounded_and_named_in_one_line(text):
    with pytest.raises(ModelError) as caught:
        prompt_of(chatty(text))
    said = str(caught.value)
    assert said.startswith("the chat template of 'a/model' makes no prompt: ")
    assert HOSTILE[text] in said
    assert "\n" not in said


def test_a_template_that_waits_for_a_later_prompt_is_bounded_there():
    made = chatty("{% if '7' in messages[0].content %}" + LOOP + "{% endif %}1")
    assert prompt_of(made).size
    with pytest.raises(ModelError, match=BEYOND):
        prompt_of(made, "1+7=")
    assert prompt_of(made).size  # the next one is served


def test_of_several_templates_one_must_be_the_default():
    made = chatty({"default": "{{ messages[-1].content }}", "tools": LOOP})
    assert made.decode(prompt_of(made)) == "1+2="
    with pytest.raises(ModelError, match="'a/model' makes no prompt: This model has multiple"):
        prompt_ids(chatty({"tools": "{{ messages[-1].content }}"}), PROBLEM)


def test_a_worker_that_could_not_start_is_told(monkeypatch):
    monkeypatch.setattr(Confined, "ask", mock.Mock(side_effect=NotReady("OSError: no space left")))
    with pytest.raises(template.TemplateFailed, match="no space left"):
        template.render("{{ messages }}", [], {})


ONE_DATE = {
    "{{ strftime_now('%d %b %Y') }}": "26 Jul 2024",
    "{{ strftime_now('%Y-%m-%d') }}": "2024-07-26",
    "{{ strftime_now('%H:%M:%S %Z') }}": "00:00:00 ",
    "{{ strftime_now('%s') }}": "1721952000",
    "{% macro today() %}{{ strftime_now('%B %Y') }}{% endmacro %}{{ today() }}": "July 2024",
    "{% set date_string = strftime_now('%d %b') %}{{ date_string | lower }}": "26 jul",
    "{% if strftime_now is defined %}{{ strftime_now('%j') }}{% endif %}": "208",
    "{% for m in messages %}{{ strftime_now('%A') }}{% endfor %}": "Friday",
}


@pytest.mark.parametrize("text", ONE_DATE)
def test_a_template_is_told_one_date_for_ever_whatever_zone_it_is_in(text, monkeypatch):
    said = []
    for zone in ("Pacific/Kiritimati", "Pacific/Niue"):
        monkeypatch.setenv("TZ", zone)
        template._worker.cache_clear()
        said.append(template.render(text, [{"role": "user", "content": "1"}], {}))
    assert said == [ONE_DATE[text]] * 2


@pytest.mark.parametrize("text", ["{{ range(99999) | random }}", "{{ lipsum(1) }}"])
def test_a_template_that_draws_makes_one_prompt_all_the_same(text):
    assert template.render(text, [], {}) == template.render(text, [], {})
