"""One look at the first prompt: what cannot be answered is refused, what is right is not."""

import copy
import json

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import tiny
from potluck.builder.checks import readers_of
from potluck.builder.exchange import _prompt_of
from potluck.builder.prompts import fault_of, rendered_mark, require_variables
from potluck.config import ConfigError, from_tree
from potluck.evaluation.request import asked_as
from potluck.model import LanguageModel, ModelError, Reader
from potluck.model.dialect import Plain
from potluck.tasks.grading import prompt_for_tags
from potluck.types import Observation, Problem

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
    assert dict(asked_as(alone, model).chat_template_kwargs) == {"enable_thinking": False}


def test_without_its_chat_template_a_model_is_asked_in_plain_text_everywhere(tmp_path):
    model = tiny.save(tmp_path / "model")
    file = tmp_path / "model" / "tokenizer_config.json"
    template = "{{ messages[-1].content }}#"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": template}))

    nodes = {"chat": {"model": model}, "plain": {"model": model, "chat_template": "none"}}
    run = from_tree({"name": "r", "task": {"name": "digits"}, "node": nodes})
    readers = readers_of(run)
    for name, text in {"chat": "1+2=#", "plain": "1+2="}.items():
        policy = LanguageModel.load(model, device="cpu", chat_template=run.node[name].chat_template)
        assert readers[name].asked(PLAIN).text == policy.asked(PLAIN).text == text
        agreed = readers[name].prompt(PLAIN).astype("<i4").tobytes()
        assert _prompt_of(run.node[name])(PLAIN) == agreed
    chat, plain = readers["chat"].prompt(PLAIN).tolist(), readers["plain"].prompt(PLAIN).tolist()
    assert plain == readers["plain"].tokenizer("1+2=")["input_ids"] != chat, "begins as any text"

    # An environment's words come as to a model that has no template.
    said = [Observation("so"), Observation("7")]
    assert readers["plain"].speech.heard(said) == ["", "so\n7"]
    assert isinstance(readers["plain"].speech.calls, Plain)
    assert readers["plain"].tokenizer.chat_template == template, "which a checkpoint keeps"

    assert asked_as(run, model).chat_template == "model"
    for of_all in ("none", "model"):
        same = {name: {**node, "chat_template": of_all} for name, node in nodes.items()}
        alike = from_tree({"name": "r", "task": {"name": "digits"}, "node": same})
        assert asked_as(alike, "another").chat_template == of_all
    assert asked_as(run, "another").chat_template == "model"


def test_variables_of_a_template_that_is_not_used_are_refused():
    both = {"chat_template": "none", "chat_template_kwargs": {"enable_thinking": False}}
    node = {"model": "builtin:digits-small", **both}
    with pytest.raises(ConfigError, match=r"\[node.a\] chat_template is 'none', so nothing reads"):
        from_tree({"name": "r", "task": {"name": "digits"}, "node": {"a": node}})


SIGNS = ["<pad>", *(chr(code) for code in range(32, 127)), *"\n√é½"]
SPECIAL = [
    "<s>", "</s>", "<bos>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>",
    "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>",
]  # fmt: skip
TURNS = "{% for m in messages %}"
BEGIN = "{% if add_generation_prompt %}"
# Each with its begin and stop token. Written for these tests, in the manner of what models have.
MANNERS = {
    "chatml": (
        f"{TURNS}<|im_start|>{{{{ m.role }}}}\n{{{{ m.content }}}}<|im_end|>\n{{% endfor %}}"
        f"{BEGIN}<|im_start|>assistant\n{{% endif %}}",
        None,
        "<|im_end|>",
    ),
    "chatml with a system of its own": (
        "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are helpful.<|im_end|>\n"
        f"{{% endif %}}{TURNS}<|im_start|>{{{{ m.role }}}}\n{{{{ m.content }}}}<|im_end|>\n"
        f"{{% endfor %}}{BEGIN}<|im_start|>assistant\n{{% endif %}}",
        None,
        "<|im_end|>",
    ),
    "thinks": (
        f"{TURNS}<|im_start|>{{{{ m.role }}}}\n{{{{ m.content }}}}<|im_end|>\n{{% endfor %}}"
        f"{BEGIN}<|im_start|>assistant\n<think>\n{{% endif %}}",
        None,
        "<|im_end|>",
    ),
    "headers": (
        f"{{{{ bos_token }}}}{TURNS}<|start_header_id|>{{{{ m.role }}}}<|end_header_id|>\n\n"
        f"{{{{ m.content | trim }}}}<|eot_id|>{{% endfor %}}"
        f"{BEGIN}<|start_header_id|>assistant<|end_header_id|>\n\n{{% endif %}}",
        "<s>",
        "<|eot_id|>",
    ),
    "no system": (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        f"{{{{ bos_token }}}}{TURNS}<start_of_turn>user\n{{{{ m.content | trim }}}}<end_of_turn>\n"
        f"{{% endfor %}}{BEGIN}<start_of_turn>model\n{{% endif %}}",
        "<bos>",
        "<end_of_turn>",
    ),
    "instructions in brackets": (
        f"{{{{ bos_token }}}}{TURNS}{{% if m.role == 'system' %}}<<SYS>>{{{{ m.content }}}}"
        f"<</SYS>>{{% else %}}[INST] {{{{ m.content }}}} [/INST]{{% endif %}}{{% endfor %}}",
        "<s>",
        "</s>",
    ),
    "plain words": (
        f"{TURNS}{{% if m.role == 'system' %}}{{{{ m.content }}}}\n\n{{% else %}}"
        f"### Instruction:\n{{{{ m.content }}}}\n\n{{% endif %}}{{% endfor %}}### Response:\n",
        None,
        "</s>",
    ),
    "none": (None, "<bos>", "</s>"),
}
QUESTIONS = [
    "What is 12 + 7?",
    "  Solve $\\frac{1}{2}x = 3$.\n\n(A) 6\n(B) 3 ",
    'def f(x):\n    """Return <b>x</b> & more."""\n    # [1] {2} {{ three }} {% four %}',
    "Q: 1+1\nA: 2\nQ: 2+2\nA:",
    "Is </s> the end of <s>struck out</s> text? [INSTALL] <<EOF user: assistant: system",
    "√2 + ½ é",
    "x" * 700,
]


def chat_reader(manner):
    template, begin, stop = MANNERS[manner]
    signs = [*SIGNS, *SPECIAL]
    ids = {sign: id for id, sign in enumerate(signs)}
    backend = Tokenizer(models.WordLevel(ids, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    backend.decoder = decoders.Fuse()
    if begin:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, ids[begin])]
        )
    # Special are the tokens of this manner; to any other model they are letters.
    own = [each for each in SPECIAL if each in (begin, stop) or each in (template or "")]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token=begin,
        eos_token=stop,
        extra_special_tokens=own,
    )
    tokenizer.chat_template = template
    return Reader(tokenizer, vocabulary=len(signs), stop_ids=frozenset([ids[stop]]))


RIGHT_PROMPTS = [
    (manner, question)
    for manner in MANNERS
    for question in QUESTIONS
    # Where these are tokens of the model, the question is told.
    if not (question.startswith("Is </s>") and manner in ("headers", "instructions in brackets"))
]


@pytest.mark.parametrize("system", ["", "Think inside <think></think> tags, answer in a word."])
@pytest.mark.parametrize("manner, question", RIGHT_PROMPTS)
def test_a_right_prompt_is_neither_refused_nor_told(manner, question, system):
    problem = Problem("p", question, "3", system)
    assert fault_of(chat_reader(manner), problem) == ""
    assert rendered_mark(chat_reader(manner), problem) == ""


def test_there_are_forty_right_prompts():
    assert len(RIGHT_PROMPTS) >= 40


ONCE = Problem("p", "What is 12 + 7?", "19", "Be brief.")
RENDERED = [
    # What a model's own template made goes into it once more.
    *((manner, chat_reader(manner).asked(ONCE).text, "") for manner in MANNERS if manner != "none"),
    # What another model's template made.
    ("chatml", "<start_of_turn>user\nWhat?<end_of_turn>\n", ""),
    ("chatml", "<s>[INST] What? [/INST]", ""),
    ("headers", "<|im_start|>user\nWhat?<|im_end|>\n", ""),
    ("plain words", "<|user|>\nWhat?<|end|>\n<|assistant|>\n", ""),
    ("no system", "<|begin_of_text|>What?", ""),
    ("none", "<|im_start|>user\nWhat?<|im_end|>\n<|user|>", ""),
    # A second begin token.
    ("none", "<bos>What is 12 + 7?", ""),
    ("headers", "<s>What?", ""),
    ("chatml", "<s>What?", ""),
    ("chatml", "<s>What?", "Be brief."),
    # In the system's text alone.
    ("chatml", "What?", "<|im_start|>system\nBe brief.<|im_end|>\n"),
    ("instructions in brackets", "What?", "<<SYS>>Be brief.<</SYS>>"),
]


@pytest.mark.parametrize("manner, question, system", RENDERED)
def test_a_question_that_was_rendered_before_is_told(manner, question, system):
    problem = Problem("p", question, "19", system)
    assert rendered_mark(chat_reader(manner), problem)


def test_turns_for_a_model_without_a_template_are_its_users_way_to_write_them():
    made = chat_reader("none")
    made.tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    assert rendered_mark(made, Problem("p", "<|im_start|>user\nWhat?", "3")) == ""


@pytest.fixture
def folder_with_template(tmp_path):
    def write(template):
        model = tiny.save(tmp_path / "model")
        file = tmp_path / "model" / "tokenizer_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": template}))
        return model

    return write


def test_a_variable_that_no_template_names_is_refused(folder_with_template):
    model = folder_with_template("{{ messages[-1].content }}{% if enable_thinking %}={% endif %}")
    for variable, is_read in (("enable_thinking", True), ("enable_thinkin", False)):
        made = Reader.of(model, variables={variable: False})
        if is_read:
            require_variables("a", made)
            continue
        with pytest.raises(ModelError, match="sets 'enable_thinkin', but the chat template never"):
            require_variables("a", made)
    with pytest.raises(ModelError, match="sets 'thinking', but it has no chat template"):
        require_variables("a", Reader.of("builtin:digits-small", variables={"thinking": True}))


def test_a_check_shows_the_prompt_and_tells_of_one_that_was_rendered(
    folder_with_template, tmp_path, potluck_says
):
    model = folder_with_template("{{ messages[-1].content }}<eos>a=")
    rows = [{"question": f"{i}+2=<eos>a=", "answer": f"{i + 2}"} for i in range(4)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe = tmp_path / "case.toml"
    recipe.write_text(
        f"""
        name = "case"
        problems_per_round = 1
        sampling = {{max_total_tokens = 64, max_new_tokens = 8}}
        evaluation = {{problems = 0, out_of_distribution = 0}}
        task = {{name = "jsonl", path = "{tmp_path / "rows.jsonl"}", tags = false}}
        node.ada = {{model = "{model}"}}
        node.bob = {{model = "builtin:digits-small"}}
        """
    )

    def check(*words):
        return potluck_says("run", recipe, "--check", *words)

    code, shown, _ = check("--prompt")
    assert code == 0
    shown = " ".join(shown.split())  # a long path is folded
    assert "ada (" in shown
    assert "+2=<eos>a=<eos>a=" in shown
    assert f"[{tiny.STOP}] '<eos>'" in shown
    assert "bob (builtin:digits-small)" in shown
    assert "holds '<eos>', which parts the turns of a chat" in shown
    assert "as it is asked" not in check()[1]
    for words in (("--prompt",), ("--check", "--prompt", "--json")):
        code, _, complaint = potluck_says("run", recipe, *words)
        assert (code, "--prompt shows what is asked" in complaint) == (2, True)
