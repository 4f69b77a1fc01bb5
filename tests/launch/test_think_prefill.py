"""A run of a model whose chat template begins its answer with ``<think>``, and one of another."""

import copy

import pytest

import tiny
import unlike
from launch.runs import lines
from potluck.launch.in_process import run
from potluck.model import LanguageModel

OPENING = "<think>\n"
NAMES = {"opens": "byte-level, single digits", "plain": "think tags"}


def begins_with_thoughts(completions, **columns):
    """Pays 1 for what a template opened, and a little for its text, so that groups differ."""
    return [float(text.startswith(OPENING)) + len(set(text)) / 1000 for text in completions]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("think")
    models = {}
    for name, tokenizer_name in NAMES.items():
        made = unlike.policy(tokenizer_name)
        tokenizer = copy.deepcopy(made.tokenizer)
        end = OPENING if name == "opens" else ""
        tokenizer.chat_template = f"{{{{ messages[-1].content }}}}: {{{{ {end!r} }}}}"
        models[name] = tiny.saved(LanguageModel(made.network, tokenizer), place / name)
    config = tiny.recipe(
        models,
        plan="horizontal",
        objective={"method": "lws"},
        task={"name": "digits", "train_problems": 50},
        sampling={"max_new_tokens": 8, "max_total_tokens": 64},
    )
    run(config, place / "run", rewards=[begins_with_thoughts], display=None)
    return place / "run"


def test_what_is_graded_shown_and_sent_begins_with_what_the_template_opened(folder):
    for node in NAMES:
        written = lines(folder, node, "completions")
        of_opens = [line for line in written if line["author"] == "opens"]
        assert of_opens
        for line in of_opens:
            assert line["text"].startswith(OPENING)
            assert line["reward/begins_with_thoughts"] > 1
        own = [line for line in written if line["author"] == "plain"]
        assert not any(line["text"].startswith(OPENING) for line in own)


def test_who_opens_leaves_out_what_begins_otherwise_with_a_reason(folder):
    unread = [line["unreadable"] for line in lines(folder, "opens")]
    assert all(each["plain"]["other opening"] > 0 for each in unread)
    assert not any("opens" in each for each in unread)
