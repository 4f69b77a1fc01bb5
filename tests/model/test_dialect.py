"""Turns, calls and observations in each model's own syntax: exactly, or not at all."""

import os
import random
import re
import time
from collections import Counter

import msgspec
import numpy as np
import pytest
from tokenizers import AddedToken

import dialects
import tiny
import unlike
from potluck.episode import ToolCall, Turn, text_of
from potluck.model import ModelError
from potluck.model.dialect import calls_of, in_turn
from potluck.types import Completion, Observation, Problem

CASES = int(os.environ.get("POTLUCK_TURNS", "60"))
"""Turns of each model; 10,000 take a minute or two."""
CALL = ToolCall("add", {"a": 1, "b": [0.5, "é\n\"'"]})
TALKS = (Observation("north"), Observation("3", "add"))


def chat(*messages):
    return [{"role": "user", "content": "What is 1+2?"}, *messages]


def message(turn):
    calls = [
        {"type": "function", "id": "call00000",
         "function": {"name": c.name, "arguments": c.arguments}} for c in turn.calls
    ]  # fmt: skip
    return {"role": "assistant", "content": turn.content} | ({"tool_calls": calls} if calls else {})


def rendered(model, messages, **options):
    """What transformers makes of a chat, in this process."""
    made = model.tokenizer.apply_chat_template(messages, return_dict=False, **options)
    return [int(id) for id in made]


def specials(model, ids):
    return [id for id in ids if id in model.special_ids]


def same(one, other):
    """Equal to the letter, by a way of its own: 1, 1.0 and True differ."""
    return repr(msgspec.to_builtins(one)) == repr(msgspec.to_builtins(other))


@pytest.mark.parametrize("name", dialects.MODELS)
def test_a_turn_is_read_back_exactly_or_has_no_ids(name):
    model, lot, counts = dialects.model(name), random.Random(name), Counter()
    for _ in range(CASES):
        turn = dialects.turn(lot)
        ids = model.ids_of(turn)
        kind = ("said " if turn.content else "") + ("called" if turn.calls else "")
        counts[kind, ids is not None] += 1
        if ids is None:
            continue
        for written in (ids, [*ids, model.stop_id], np.array(ids, np.int32)):
            assert same(model.turn_of(written), turn)
        assert model.turn_said(ids) == turn
        assert not model.stop_ids.intersection(ids)
        # Only what a call without any words is written with.
        bare = Turn("", tuple(ToolCall("add", {}) for _ in turn.calls))
        assert specials(model, ids) == (specials(model, model.ids_of(bare)) if turn.calls else [])
    print(name, dict(counts))
    assert counts["said ", True] > counts["said ", False]
    assert (counts["called", True] > CASES / 20) == (name != "gemma")


@pytest.mark.parametrize("name", ["qwen", "llama", "mistral"])
def test_a_turn_stands_as_the_template_writes_it(name):
    model, lot, compared = dialects.model(name), random.Random(name), 0
    begun = rendered(model, chat(), add_generation_prompt=True)
    for _ in range(CASES):
        turn = dialects.turn(lot)
        strange = any(s in text_of([turn]) for s in dialects.SPECIAL)
        # Templates cut the space around what is said, and thoughts; Mistral's puts one before it.
        cut = turn.content != turn.content.strip() or (name == "mistral" and not turn.calls)
        if strange or cut or (ids := model.ids_of(turn)) is None:
            continue
        whole = rendered(model, chat(message(turn)))
        assert whole[: len(begun) + len(ids) + 1] == [*begun, *ids, model.stop_id]
        compared += 1
    assert compared > CASES / 10


@pytest.mark.parametrize("name", ["qwen", "llama", "mistral", "gemma"])
def test_observations_stand_as_the_template_writes_them(name):
    model, lot, compared = dialects.model(name), random.Random(name), 0
    for _ in range(CASES):
        heard = dialects.observations(lot)
        ids = model.observed_ids(heard).tolist()
        harmless = [Observation("x", each.tool) for each in heard]
        assert specials(model, ids) == specials(model, model.observed_ids(harmless).tolist())
        strange = any(s in each.content for s in dialects.SPECIAL for each in heard)
        several = len(heard) > 1 and name in ("llama", "gemma")
        if strange or several or any(o.content != o.content.strip() for o in heard):
            continue
        tool = heard[0].tool and name != "gemma"
        before = Turn("", (ToolCall("add", {}),) * len(heard)) if tool else Turn("x")
        answer = {"role": "tool", "name": "add", "tool_call_id": "call00000"}
        said = [{**(answer if tool else {"role": "user"}), "content": o.content} for o in heard]
        whole = rendered(model, chat(message(before), *said), add_generation_prompt=True)
        assert whole[-len(ids) - 1 :] == [model.stop_id, *ids]
        compared += 1
    assert compared > CASES / 10


def test_a_model_without_a_template_hears_the_text_as_it_stands():
    model = dialects.model("plain")
    told = model.observed_ids([Observation("You see <|end|>"), Observation(" é")])
    assert model.tokenizer.decode(told) == "You see <|end|>\n é"
    assert model.stop_id not in told
    assert tiny.policy().observed_ids([Observation("ab+Ü")]).tolist() == [3, 4, 39]
    assert told.dtype == np.int32
    assert not told.flags.writeable


F, G = ToolCall("f", {}), ToolCall("g", {"a": None})


@pytest.mark.parametrize(
    ("name", "text", "turn"),
    [
        ("qwen", '<tool_call>{"name":"f","arguments":{}}</tool_call>\n', Turn("", (F,))),
        ("qwen", 'Hm.\n<tool_call>\n{"name": "g", "arguments": {"a": null}}\n</tool_call>\n'
         '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', Turn("Hm.", (G, F))),
        ("llama", '<|python_tag|>{"name": "f", "parameters": {}}', Turn("", (F,))),
        ("llama", '{ "name" : "g",\n"parameters": {"a" :null} }', Turn("", (G,))),
        ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"name": "g", "arguments": '
         '{"a": null}}]', Turn("", (F, G))),
        ("plain", 'f(a=1, b = {"c": [2]})', Turn("", (ToolCall("f", {"a": 1, "b": {"c": [2]}}),))),
        ("plain", "f()", Turn("", (F,))),
    ],
)  # fmt: skip
def test_calls_are_read_as_models_write_them(name, text, turn):
    model = dialects.model(name)
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert model.turn_of([*ids, model.stop_id]) == model.turn_said(ids) == turn
    assert same(model.turn_of(model.ids_of(turn)), turn)


@pytest.mark.parametrize("bad", [
    '{"name": "f", "arguments": {"a": 1e400}}', '{"name": "f", "arguments": {"a": NaN}}',
    '{"name": "f", "arguments": [1]}', '{"name": "f", "arguments": {"a": 1}', '{"name": "f"}', "",
    '{"name": "f", "arguments": {"a": "\\ud800"}}', '{"name": "f", "arguments": {}}}',
    '{"name": "f", "arguments": ' + '{"a":' * 5000,
    '{"name": "f", "arguments": {"a": ' + "9" * 5000 + "}}",
])  # fmt: skip
def test_a_malformed_call_is_what_the_turn_says(bad):
    for name, text in {
        "qwen": f"<tool_call>\n{bad}\n</tool_call>",
        "llama": bad.replace("arguments", "parameters"),
        "plain": bad.replace('{"name": "f", "arguments": ', "f(a="),
    }.items():
        model = dialects.model(name)
        assert model.turn_of(model._encode(text)) == Turn(text)


def test_an_episode_goes_as_text_if_each_turn_is_said_exactly():
    model = dialects.model("qwen")
    turns = [Turn("Hm.", (CALL,)), Turn("4"), Turn("n")]
    parts = [[*model.ids_of(turn), model.stop_id] for turn in turns]
    parts[2].pop()
    special = model.tokenizer.get_vocab()["<|im_start|>"]
    for more, text in (([], text_of(turns)), ([special], None), (model._encode("Ѧ")[:1], None)):
        token_T = np.int32([*parts[0], *parts[1], *parts[2], *more])
        lengths = (len(parts[0]), len(parts[1]), len(parts[2]) + len(more))
        written = Completion("p", "a", 0, token_T, None, "length", turns=lengths, observed=b"abcd")
        assert model.said(written, dialects.PROBLEM) == text
        assert model.spelled(written, dialects.PROBLEM, most_bytes=999).text == text
    assert model.spelled(written, dialects.PROBLEM, most_bytes=9).text is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mistral", 'So: [TOOL_CALLS] [{"name": "f", "arguments": {}}]'),
        ("qwen", '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call> So.'),
        ("plain", "So: f(a=1)"),
    ],
)
def test_words_where_a_model_says_none_beside_a_call_make_it_no_call(name, text):
    model = dialects.model(name)
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert model.turn_of(ids).calls == ()
    assert model.turn_of(ids).content.strip() == text


@pytest.mark.parametrize("name", dialects.MODELS)
def test_any_ids_are_a_turn(name):
    model, lot = dialects.model(name), random.Random(name)
    for _ in range(CASES):
        ids = [lot.randrange(model.vocabulary + 9) for _ in range(lot.randint(0, 12))]
        turn = model.turn_of(ids)
        said = model.turn_said(ids)
        assert said in (None, turn)
        if specials(model, ids[:-1]):
            assert said is None


def test_a_template_that_adds_thoughts_to_a_call_adds_none_to_that_of_a_peer():
    usual, thinks = dialects.model("qwen"), dialects.made("qwen", dialects.THINKING)
    turn = Turn("So:", (CALL, CALL))
    assert thinks.ids_of(turn) == usual.ids_of(turn)
    assert thinks.observed_ids(TALKS[:1]).tolist() == usual.observed_ids(TALKS[:1]).tolist()
    thought = Turn("<think>\nadd\n</think>\n", (CALL,))
    assert thinks.turn_of(thinks.ids_of(thought)) == thought


def test_tools_are_in_the_prompt_and_a_model_that_hears_of_none_is_refused():
    for name in ("qwen", "llama", "mistral"):
        model = dialects.model(name)
        assert '"add"' in model.tokenizer.decode(model.prompt(dialects.PROBLEM))
        model.require_turns(dialects.PROBLEM)
    without = Problem("p", "What is 1+2?", "3")
    assert dialects.model("plain").prompt(dialects.PROBLEM).tolist() == (
        dialects.model("plain").prompt(without).tolist()
    )
    dialects.model("plain").require_turns(dialects.PROBLEM)
    dialects.model("gemma").require_turns(without)
    for template, said in {
        dialects.GEMMA: "'a/gemma' tells the model of no tools: its prompt lacks 'add'",
        "{{ tools }}" + dialects.GEMMA: "'a/gemma' writes no tool calls that can be read",
    }.items():
        with pytest.raises(ModelError, match=said):
            dialects.made("gemma", template).require_turns(dialects.PROBLEM)


def test_a_template_that_opens_thoughts_before_each_turn_is_refused_where_there_are_turns():
    begins = "add_generation_prompt %}{{ '<|im_start|>assistant\\n"
    assert begins in dialects.QWEN
    closes = dialects.QWEN.replace(begins, rf"{begins}<think>\n\n</think>\n\n")
    dialects.made("qwen", closes).require_turns(dialects.PROBLEM)
    opens = dialects.QWEN.replace(begins, rf"{begins}<think>\n")
    with pytest.raises(ModelError, match=r"opens '<think>' before each turn.*chat_template_kwargs"):
        dialects.made("qwen", opens).require_turns(dialects.PROBLEM)


def test_a_template_that_ends_turns_by_another_token_is_named():
    silent = dialects.GEMMA.replace("for m in messages", "for m in messages if m.role == 'user'")
    for template in (dialects.GEMMA.replace("<end_of_turn>", "<eot>"), silent):
        other = dialects.made("gemma", template.replace("raise_exception('by turns')", "''"))
        with pytest.raises(ModelError, match="ends an answer by none of the model's stop tokens"):
            other.require_turns(Problem("p", "What is 1+2?", "3"))


def test_special_tokens_take_the_space_beside_them_where_they_do_in_a_prompt():
    model = dialects.made("qwen", dialects.QWEN)
    eager = AddedToken("<|im_end|>", special=True, rstrip=True, normalized=False)
    model.tokenizer.add_tokens([eager])
    model.tokenizer.backend_tokenizer.add_special_tokens([eager])
    whole = rendered(
        model,
        chat(message(Turn("x")), {"role": "user", "content": "y"}),
        add_generation_prompt=True,
    )
    ids = model.observed_ids([Observation("y")]).tolist()
    assert whole[-len(ids) - 1 :] == [model.stop_id, *ids]


def test_the_name_of_a_tool_becomes_no_special_token():
    model = dialects.made(
        "qwen", dialects.QWEN.replace("'\\n<tool_response>", "m.name + '\\n<tool_response>")
    )
    plain = specials(model, model.observed_ids([Observation("", "add")]))
    assert specials(model, model.observed_ids([Observation("", "<|im_end|>")])) == plain
    assert "add" in model.tokenizer.decode(model.observed_ids([Observation("", "add")]))


def test_a_turn_that_a_tokenizer_cannot_spell_has_no_ids():
    assert tiny.policy().ids_of(Turn("a B")) is None
    assert unlike.policy("lower-casing").ids_of(Turn("Total")) is None
    assert dialects.model("llama").ids_of(Turn("", (CALL, CALL))) is None
    assert dialects.model("gemma").ids_of(Turn("", (CALL,))) is None


MARKED = "potluckName"
HOSTILE = {
    "names": MARKED,
    "names and brackets": MARKED + " {",
    "brackets and spaces": "{" + " " * 63,
    "spaces": " ",
    "half an argument": '{"potluckKey" : "one" ,',
    "names and arguments": MARKED + '{"potluckKey": "one", "potluckOther": "two"}',
    "what was said": "potluckSaid",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_megabyte_of_marks_in_a_template_costs_its_length(what):
    """Each was without an end: three nested searches over 1 MiB."""
    piece = HOSTILE[what]
    text = piece * (2**20 // len(piece))
    steps = []

    def render(messages):
        steps.append(len(text))
        return "begun" + text if len(messages) > 1 else "begun"

    begun_s = time.process_time()
    calls_of(render, ["<end>"])
    assert time.process_time() - begun_s < 20
    assert len(steps) <= 4


def test_marks_are_found_one_behind_another():
    marks = [re.compile("a+"), re.compile("b")]
    found = in_turn("b a b aa b", marks, 1)
    assert [match.span() for match in found] == [(2, 3), (4, 5)]
    assert in_turn("b a", marks) is None
