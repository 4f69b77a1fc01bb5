"""What a prompt holds, drops and opens, by chat templates in the shape of real ones."""

import copy

import pytest

import tiny
from potluck.model.prompt import lacks_question, lacks_system, opening_of, prompt_of
from potluck.tasks.grading import answer_in, prompt_for_tags
from potluck.types import Problem

TAGS = prompt_for_tags("a number")
USER = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
OPENED = {
    "<|im_start|>assistant\n": ("", False),
    "<|im_start|>assistant\n<think>\n": ("<think>\n", True),
    "<|im_start|>assistant\n<think>": ("<think>", True),
    "<|im_start|>assistant\nLet me see.\n<think>\n": ("<think>\n", True),
    "<|im_start|>assistant\n<think>\nOkay, ": ("<think>\nOkay, ", True),
    "<|im_start|>assistant\n<think>\n\n</think>\n\n": ("<think>\n\n</think>\n\n", False),
    "<|im_start|>assistant\n<think>\n\n</think>\n\n<answer>": (
        "<think>\n\n</think>\n\n<answer>",
        True,
    ),
    "<assistant>\n": ("", False),
    "<start_of_turn>model\n": ("", False),
    "[/INST]": ("", False),
}


def written(text):
    return f"{{{{ {text!r} }}}}"


def made(template, problem):
    tokenizer = copy.deepcopy(tiny.tokenizer())
    tokenizer.chat_template = template
    return prompt_of(tokenizer, problem)


@pytest.mark.parametrize("end", OPENED)
def test_what_a_template_opens_is_found(end):
    prompt = made(USER + written(end), Problem("p", "1+2=", "3", TAGS))
    assert (prompt.opening, prompt.leaves_open) == OPENED[end]


def test_what_the_template_opened_counts_for_the_tags():
    opening, _ = opening_of("1+2=<think>\n", Problem("p", "1+2=", "3"), templated=True)
    assert answer_in(opening + "so 3.</think><answer>3</answer>") == "3"


def test_an_empty_pair_of_tags_is_no_part_of_an_answer_that_nobody_asked_to_tag():
    end = "<think>\n\n</think>\n\n"
    assert made(USER + written(end), Problem("p", "1+2=", "3")).opening == ""


def test_only_thoughts_are_opened_by_a_question_without_a_template():
    for question, opening in {"a <b>": "", "say it: <think>\n": "<think>\n"}.items():
        problem = Problem("p", question, "")
        assert opening_of(question, problem, templated=False)[0] == opening


def test_a_system_text_that_a_template_drops_joins_the_question():
    only_user = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    problem = Problem("p", "1+2=", "3", "1+2")
    assert made(only_user, problem).text == "1+2\n\n1+2="


KEPT = [
    USER,
    "{% for m in messages %}{{ m.content | trim }}\n{% endfor %}",
    "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}",
    "{{ messages | tojson }}",
    "{% for m in messages %}{{ m.content | e }}{% endfor %}",
    "{% for m in messages %}{{ m.content.replace('/no_think', '') | trim }} {% endfor %}",
]
TEXTS = [
    'a {b} "c"',
    " <b>x</b> & y\n",
    "é 漢 🙂",
    "x\n\n  y",
    "x /no_think",
    "def f():\n\treturn 1",
]


@pytest.mark.parametrize("template", KEPT)
def test_what_a_template_keeps_trims_or_escapes_is_not_taken_for_dropped(template):
    for text in TEXTS:
        problem = Problem("p", text, "", "Answer 7 if asked 7.")
        prompt = made(template, problem)
        assert not lacks_system(prompt.text, problem)
        assert not lacks_question(prompt.text, problem)
        assert prompt.text.count("Answer 7") == 1


def test_a_question_that_a_template_drops_is_seen():
    problem = Problem("p", "1+2=", "3", "add")
    assert lacks_question("add", problem)
    assert lacks_question("add 1+2", problem)
