"""Model cards: YAML that the Hub reads, Markdown that no recipe's string can break."""

import json
import re

import pytest
from huggingface_hub import ModelCard
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec.structs import replace

from potluck.config import from_tree
from potluck.node.storage.export import card_of, merged_card, model_card
from potluck.objective.methods import METHODS
from potluck.reports.answers import ControlAnswer, add_answers, sentence

EVALUATION = {"round": 20, "validation": 0.73456, "problems": 200}
EVALUATION |= {"out_of_distribution": 0.25, "out_of_distribution_problems": 150}
METRICS = {"round": 19, "reward_mean": 0.625, "own_reward_mean": None}
LORA = {"r": 8, "alpha": 16, "dropout": 0.1, "targets": ["q_proj", "o_proj"]}


def recipe(*overrides, model="Qwen/Qwen2.5-1.5B", **node):
    small, large = {"model": model, "weight": 1, **node}, {"model": "Qwen/Qwen2.5-3B", "weight": 3}
    tree = {"name": "size", "rounds": 50, "plan": "vertical", "objective": {"method": "f-tis"}}
    tree |= {"task": {"name": "gsm8k"}, "node": {"small": small, "large": large}}
    return from_tree(tree, overrides)


def card(*overrides, metrics=METRICS, evaluation=EVALUATION, **node):
    return model_card(recipe(*overrides, **node), "small", 20, metrics, evaluation)


def test_each_reward_function_has_its_number():
    told = card(evaluation={**EVALUATION, "rewards": {"correct": 0.5, "a`b": -0.25}})
    assert "- validation, `correct` alone: 0.5000\n- validation, ``a`b`` alone: -0.2500" in told
    assert "alone" not in card()


def plain(tree):
    """The card of a node that has learned nothing yet."""
    tree = {"name": "a", "node": {"small": {"model": "gpt2"}}} | tree
    return model_card(from_tree(tree), "small", 1, {}, {})


def rows(text):
    """Rows of the card's tables, as lists of cells."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_hub_reads_base_library_data_and_tags_and_no_licence():
    assert ModelCard(card()).data.to_dict() == {
        "base_model": "Qwen/Qwen2.5-1.5B",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "datasets": ["openai/gsm8k"],
        "tags": ["potluck", "grpo", "f-tis", "reinforcement-learning"],
    }


def test_the_card_of_a_merged_adapter_is_that_of_a_whole_model_but_says_how_it_was_trained():
    adapter, whole = card(lora=LORA), card()
    data = ModelCard(adapter).data
    assert (data.library_name, data.tags[-1]) == ("peft", "lora")
    assert data.base_model == "Qwen/Qwen2.5-1.5B"
    merged = merged_card(adapter)
    assert ModelCard(merged).data.to_dict() == ModelCard(whole).data.to_dict()
    assert merged.rpartition("## Loading")[2].strip() == whole.rpartition("## Loading")[2].strip()
    head = adapter.partition("# `size`")[2].partition("## Loading")[0]
    assert "LoRA, r = 8" in head
    assert head in merged


def test_the_card_of_a_served_node_claims_nothing_that_its_server_chose():
    engine = {"name": "tinker", "url": "https://server.example"}
    weighed = "objective={method = 'lws', weight = 'likelihood'}"
    text = card(weighed, "plan=horizontal", engine=engine, lora={"r": 8}, learning_rate=1e-3)
    told = dict(row[:2] for row in rows(text) if len(row) == 2)
    assert told["trained weights"] == "LoRA, r = 8; its server chose alpha and the layers"
    assert told["optimiser"] == "Adam of the server, learning rate 0.001"
    assert "computed in" not in told
    assert "`potluck export` brings it from its server" in text
    assert "dtype" not in text
    assert "alpha = " not in text
    assert ["computed in", "`float32`"] in rows(card(lora=LORA))


def test_another_tools_card_of_an_adapter_keeps_its_text():
    text = "---\nlibrary_name: peft\nlicense: mit\n---\n# An adapter\nAs it is.\n"
    merged = ModelCard(merged_card(text))
    assert (merged.data.library_name, merged.data.license) == ("transformers", "mit")
    assert merged.text.strip() == "# An adapter\nAs it is."


@pytest.mark.parametrize("method", METHODS)
def test_the_method_goes_by_its_name(method):
    text = card(f"objective.method={method}")
    assert method in ModelCard(text).data.tags
    cap = ", C = 2" if method.endswith("-tis") or method == "tis" else ""
    limit = ", g = 50" if method.startswith("f-") else ""
    exponent = ", c = 1, typicality, tests habits" if method == "lws" else ""
    assert ["method", f"`{method}`{cap}{limit}{exponent}"] in rows(text)
    assert ("with log-probabilities" in text) == (method not in ("nois", "lws"))
    assert ("arXiv:2605.22537" in text) == (method != "lws")  # LWS is not the paper's


def test_the_card_tells_whose_rewards_it_learned_from():
    assert ["rewards", "the task's own grading"] in rows(card())
    hashed = card("task.reward=hash")
    assert "| a hash of the token ids, a check of the plumbing: it learned nothing of u" in hashed
    brief = {"function": "/home/me/mine.py:brief", "weight": 0.5}
    paid = plain({"reward": [brief, {"function": "task"}]})
    assert ["rewards", "`mine.py:brief` (weight 0.5), `task` (weight 1)"] in rows(paid)
    assert "/home/me" not in paid


@pytest.mark.parametrize(
    "task, datasets",
    [
        ({"name": "gsm8k"}, ["openai/gsm8k"]),
        ({"name": "gsm8k", "path": "/home/me/gsm8k"}, None),
        ({"name": "hub", "dataset": "someone/sums"}, ["someone/sums"]),
        ({"name": "jsonl", "path": "/home/me/sums.jsonl"}, None),
    ],
)
def test_only_data_of_the_hub_is_named_as_such_and_no_folder_is_told(task, datasets):
    text = plain({"task": task})
    assert ModelCard(text).data.datasets == datasets
    assert "/home/me" not in text
    assert f"`{task['name']}`" in text


def test_a_folder_is_no_base_model_of_the_hub_and_only_its_last_part_is_told(tmp_path, monkeypatch):
    (tmp_path / "org" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for model in (str(tmp_path / "org" / "mine"), "org/mine", "../mine", "builtin:digits-small"):
        text = card(model=model, lora=LORA)
        assert ModelCard(text).data.base_model is None
        assert str(tmp_path) not in text
        shown = model.rpartition("/")[2]
        assert f"`{shown}`" in text
        assert f'from_pretrained("folder/of/{shown}", dtype=' in text


@pytest.mark.parametrize("override, shown", [
    ("plan=horizontal", "`horizontal`"),
    ("objective={method='lws', weight='likelihood'}", "`lws`, c = 1, likelihood, tests habits |"),
    ("objective={method='lws', habit_test=false}", "`lws`, c = 1, typicality |"),
    ("objective={method='nois', own_success_weight=2}", "`nois`, own successes x 2 |"),
    ("objective={method='lws', weight='own/mine.py:mine'}", "own weight `mine.py:mine` |"),
    ("sampling.temperature=0.5", "| temperature | 0.5 |"),
    ("node.small.dtype=bfloat16", "| computed in | `bfloat16` |"),
    ("node.large.weight=9", "10%"),
])  # fmt: skip
def test_what_the_recipe_says_is_what_the_card_says(override, shown):
    assert shown in card(override)
    assert shown not in card()


def test_the_numbers_are_those_of_the_last_lines():
    text = card()
    assert "- validation: 0.7346 (greedy answers to 200 problems, after round 20)" in text
    assert "- out of distribution (gsm8k): 0.2500 (greedy answers to 150 problems, aft" in text
    assert "- training, everybody's completions of the last round: 0.6250" in text
    assert "its own" not in text  # it wrote none
    assert "- none yet" in card(metrics={}, evaluation={})
    elsewhere = card("out_of_distribution.name=digits")
    assert "- out of distribution (digits): 0.2500" in elsewhere


def test_numbers_are_read_from_the_nodes_folder_as_of_the_checkpoints_round(tmp_path):
    def write(name, lines):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))

    assert "- none yet" in card_of(recipe(), "small", tmp_path, 0)
    write("metrics", [{"round": r, "reward_mean": r / 10} for r in range(4)])
    write("evaluation", [{"round": r, "validation": r / 100, "problems": 5} for r in (0, 2, 4)])
    text = card_of(recipe(), "small", tmp_path, 2)
    assert "completions of the last round: 0.1000" in text
    assert "validation: 0.0200 (greedy answers to 5 problems, after round 2)" in text
    text = card_of(recipe(), "small", tmp_path, 4)
    assert "completions of the last round: 0.3000" in text
    assert "validation: 0.0400" in text


def test_the_snippets_are_python_and_name_an_adapters_base():
    for text, expected in ((card(), "transformers"), (card(lora=LORA), "peft")):
        (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        compile(code, "card", "exec")
        assert expected in code
    assert 'AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B", dtype="float32")' in code
    assert "potluck export" in text


def shape(text):
    """What a reader sees of a card but for words: its blocks, and links and HTML in them."""
    inline = ("link_open", "html_inline", "image", "strong_open", "em_open")
    blocks = MarkdownIt("commonmark").enable("table").parse(ModelCard(text).text)
    inside = [child.type for block in blocks for child in block.children or ()]
    return [block.type for block in blocks], [kind for kind in inside if kind in inline]


WICKED = st.text(alphabet=st.sampled_from("`|\\\n\r#-*<a>[](){}!:'\"&\u2028\u0085\u202e\x00 é"))


@given((WICKED | st.text()).filter(bool), WICKED | st.text())
@example("a`", "")
@example("a", "b|c")
@example("a", "b`c")
@example("a", "c`")
@example("a\n---\nlicense: mit\n---\n", "`` | b |\n|---|\n# x")
@example("a/```\n```\n<script>", "|")
@example("x\\", "\\|`")
def test_no_string_of_a_recipe_breaks_the_card(model, target):
    simple = card(model="../plain", lora={**LORA, "targets": ["q_proj"]})
    wicked = card(model=model, lora={**LORA, "targets": [target]})
    assert shape(wicked) == shape(simple)
    # What is shown is the string itself, but for what would steer a display.
    expected = "".join(c if c.isprintable() else " " for c in target).strip()
    blocks = MarkdownIt("commonmark").enable("table").parse(ModelCard(wicked).text)
    spans = [c.content for b in blocks for c in b.children or () if c.type == "code_inline"]
    assert expected in [span.strip() for span in spans]
    known = ModelCard(wicked).data.to_dict()
    known.pop("base_model", None)
    assert known == ModelCard(simple).data.to_dict()
    (code,) = re.findall(r"```python\n(.*?)```\n\nMerged", wicked, re.DOTALL)
    compile(code, "card", "exec")


def test_it_says_what_controls_told_of_this_node(tmp_path):
    told = "small", "half", 0.72, 0.69, (0.03, 0.01, 0.05)
    answer = ControlAnswer(*told, problems=288, written=(3600, 3600))
    add_answers(tmp_path, [answer, replace(answer, node="large")])
    lines = card_of(recipe(), "small", tmp_path / "small", 2).splitlines()
    said = [line for line in lines if "control" in line]
    assert said == [f"- against a control: {sentence(answer)}"]
