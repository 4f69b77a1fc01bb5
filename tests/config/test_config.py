import json
import math
import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

import potluck
from potluck import STARTING_RECIPE
from potluck.config import (
    ConfigError,
    EvaluationConfig,
    NodeConfig,
    RunConfig,
    SamplingConfig,
    SwarmConfig,
    as_tree,
    from_tree,
    load,
)
from potluck.config.reading import KEYS, place_hint
from potluck.config.run import AnyEngine
from potluck.model.loading import locate
from potluck.objective.methods import METHODS, ObjectiveConfig, method_of
from potluck.rollout.options import EngineOptions, HFOptions, TextOptions, VllmOptions
from potluck.tasks.arithmetic import ChainOptions, DigitsOptions
from potluck.tasks.benchmarks import Gsm8kOptions, Math500Options
from potluck.tasks.environments.task import GameOptions
from potluck.tasks.games.calculator import CalculatorOptions
from potluck.tasks.games.maze import MazeOptions
from potluck.tasks.gym import ReasoningGymOptions
from potluck.tasks.named import TASKS
from potluck.tasks.table import HubOptions, JsonlOptions

TWO_NODES = """
name = "size-1.5b-3b"
plan = "vertical"
[objective]
method = "f-tis"
divergence_limit = 50
[node.small]
model = "Qwen/Qwen2.5-1.5B"
[node.large]
model = "Qwen/Qwen2.5-3B"
sampling_rows = 128
"""


@pytest.fixture
def toml(tmp_path):
    def write(text):
        path = tmp_path / "run.toml"
        path.write_text(text)
        return path

    return write


# What a recipe means.


def test_a_run_is_what_the_file_says_and_defaults_for_the_rest(toml):
    run = load(toml(TWO_NODES))
    assert run.objective == ObjectiveConfig(**METHODS["f-tis"].fields, divergence_limit=50.0)
    assert list(run.node) == ["small", "large"]
    assert run.node["large"] == NodeConfig(model="Qwen/Qwen2.5-3B", sampling_rows=128)
    assert (run.task, run.sampling, run.evaluation) == (
        DigitsOptions(),
        SamplingConfig(),
        EvaluationConfig(),
    )


TASK_TABLES = [
    DigitsOptions(),
    DigitsOptions(width=5, other_width=2, train_problems=9, reward="hash"),
    ChainOptions(),
    ChainOptions(terms=16, other_terms=4, reward="hash"),
    Gsm8kOptions(),
    Gsm8kOptions(path="some/folder", validation="test", system_prompt="Think.", reward="hash"),
    Gsm8kOptions(tags=False, examples="some/file", shots=8),
    Math500Options(path="some/folder"),
    Math500Options(path="some/folder", tags=False),
    Math500Options(path="some/folder", grading="math-verify"),
    JsonlOptions(path="a.jsonl", question="prompt", grading="exact", tags=False, held_out=0),
    JsonlOptions(path="a.jsonl", tags=False, last_answer="box", examples="b.jsonl", worked="c"),
    JsonlOptions(path="a.jsonl", grading="choice", options=("a", "b"), answer_as="index-from-1"),
    HubOptions(dataset="a/b", train="train[:9]", answer_after="####"),
    HubOptions(dataset="a/b", grading="choice", options="choices"),
    ReasoningGymOptions(dataset="chain_sum"),
    ReasoningGymOptions(
        dataset="gcd", parameters={"max_value": 9, "list": [1, [2.5]]}, other_parameters={"a": {}}
    ),
    GameOptions(game="games.py:Game", parameters={"size": 4}, max_turns=3),
    MazeOptions(kind="keys", other_kind="portals", other_size=4, problems=9),
    CalculatorOptions(terms=5, train_problems=0, max_turns=9),
]


@pytest.mark.parametrize("task", TASK_TABLES, ids=str)
def test_a_run_spelled_out_is_read_back_as_the_same_run(toml, task):
    run = msgspec.structs.replace(
        load(toml(TWO_NODES), ["sampling.stop=['<end>','</s>']", "objective.method=vis"]), task=task
    )
    tree = as_tree(run)
    assert from_tree(tree) == run
    assert from_tree(json.loads(json.dumps(tree))) == run
    assert as_tree(from_tree(tree)) == tree


def test_every_task_takes_the_way_there_and_back():
    assert {type(task) for task in TASK_TABLES} == set(TASKS.values())


def test_a_run_cannot_be_changed_once_it_is_read(toml):
    run = load(toml(TWO_NODES))
    with pytest.raises(AttributeError):
        run.seed = 1
    with pytest.raises(TypeError):
        run.node["third"] = run.node["small"]


@pytest.mark.parametrize("method", METHODS)
def test_a_method_names_importance_filter_and_others(toml, method):
    run = load(toml(TWO_NODES), [f"objective.method={method}"])
    assert run.objective == ObjectiveConfig(**METHODS[method].fields)
    assert method_of(run.objective) == method


@pytest.mark.parametrize("count", [1, 2])
def test_a_recipe_that_names_no_method_and_no_plan_trains_the_default(toml, count):
    nodes = "".join(f"[node.n{at}]\nmodel = 'x'\n" for at in range(count))
    run = load(toml(f"name = 'x'\n{nodes}"))
    assert (method_of(run.objective), run.plan) == ("lws", "horizontal")
    assert (run.objective.weight, run.objective.habit_test) == ("typicality", True)
    starting = load(STARTING_RECIPE)
    assert (run.objective, run.plan) == (starting.objective, starting.plan)


def test_keys_that_say_together_what_is_learned_are_named_together(toml):
    bare = toml("name = 'x'\n[node.a]\nmodel = 'x'\n")
    with pytest.raises(ConfigError, match="names importance and filter, but importance, filter, o"):
        load(bare, ["objective.importance=none", "objective.filter=false"])
    three = ["objective.importance=none", "objective.filter=false", "objective.others=all"]
    assert method_of(load(bare, three).objective) == "nois"
    assert method_of(load(bare, ["objective.method=F-TIS"]).objective) == "f-tis"


def test_a_method_beside_fields_that_agree_is_no_contradiction(toml):
    run = load(toml(TWO_NODES), ["objective.importance=truncated", "objective.filter=true"])
    assert run == load(toml(TWO_NODES))


def test_horizontal_takes_as_many_nodes_as_a_group_has_completions(toml):
    assert load(toml(TWO_NODES), ["plan=horizontal", "group_size=2"]).group_size == 2
    third = TWO_NODES + "[node.third]\nmodel = 'x'\n"
    assert load(toml(third), ["group_size=2", "plan=vertical"]).plan == "vertical"
    with pytest.raises(ConfigError, match="among 3 nodes; raise group_size to at least 3, or set"):
        load(toml(third), ["plan=horizontal", "group_size=2"])
    # At its own pace a node writes as much of a group however many others there are.
    fifth = third + "[node.fourth]\nmodel = 'x'\n[node.fifth]\nmodel = 'x'\n"
    free = load(toml(fifth), ["plan=horizontal", "group_size=4", "pace=free", "intake=1"])
    assert len(free.node) > free.group_size
    with pytest.raises(ConfigError, match="a node writes 1 of the 4 completions"):
        load(toml(fifth), ["plan=horizontal", "group_size=4", "pace=free", "intake=3"])
    with pytest.raises(ConfigError, match="less than one of the 2 problems"):
        load(toml(fifth), ["plan=vertical", "problems_per_round=2", "pace=free"])


# What --set can reach.


def test_an_override_wins_over_the_file_and_an_earlier_one_and_may_open_a_table(toml):
    two = ["plan=vertical", "objective.divergence_limit=10", "plan=horizontal"]
    run = load(toml(TWO_NODES), [*two, "node.small.model=models/tiny", "swarm.cohort=3"])
    assert (run.objective.divergence_limit, run.plan) == (10.0, "horizontal")
    assert run.swarm == SwarmConfig(cohort=3)
    assert run.node["small"] == NodeConfig(model="models/tiny")
    assert run.node["large"] == load(toml(TWO_NODES)).node["large"]


def test_a_table_that_python_makes_checks_itself():
    node = {"a": {"model": "-"}}
    made = RunConfig(name="x", node=node, sampling={"top_k": 3}, reward=[{"function": "task"}])
    assert made == from_tree(as_tree(made))
    for changed, complaint in (
        ({"rounds": "5"}, "RunConfig: rounds is '5'; Expected `int`, got `str`"),
        ({"task": {"digits": 1}}, "RunConfig: task is {'digits': 1}; Object missing required"),
        ({"sampling": {"top_p": 2}}, "Expected `float` <= 1.0 - at `sampling.top_p`"),
        ({"node": {"a": {"modle": "-"}}}, r"unknown field `modle` .*\(potluck.from_tree reads"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            RunConfig(**{"name": "x", "node": node, **changed})
    with pytest.raises(ConfigError, match="NodeConfig: model is 4; Expected `str`, got `int`"):
        NodeConfig(model=4)


@pytest.mark.parametrize("key, value", [
    ("rounds", 7), ("keep_best", True), ("deadline_s", 2.5), ("plan", "horizontal"),
    ("control", ["half", "alone"]), ("stop_when.validation", 0.5), ("sampling.stop", ["a", "b"]),
    ("log.to", ["wandb"]), ("node.small.adam_betas", [0.5, 0.25]), ("swarm.tls.folder", "x"),
    ("node.small.lora.targets", "all-linear"), ("node.small.lora.targets", ["x"]),
    ("task.parameters.a", {"b": [1, 2]}), ("node.large.engine.concurrency", 3),
])  # fmt: skip
def test_a_key_of_every_kind_is_set_and_no_other_changes(toml, key, value):
    """Numbers, truths, choices, lists of a kind or of a length, what may be absent, and tables."""
    text = TWO_NODES + "engine = {name = 'openai', url = 'http://x', model = 'x'}\n"
    text = text.replace('model = "Qwen/Qwen2.5-3B"\nsampling_rows = 128\n', "")
    text = text.replace('method = "f-tis"\ndivergence_limit = 50', 'method = "lws"')
    text += "[node.small.lora]\n[swarm.tls]\nfolder = 'y'\n"
    recipe = toml(text + "[task]\nname = 'reasoning-gym'\ndataset = 'gcd'\n")
    spelled = json.dumps(value).replace(": ", " = ")  # TOML
    changed, wanted = as_tree(load(recipe, [f"{key}={spelled}"])), as_tree(load(recipe))
    table, *tables, last = wanted, *key.split(".")
    for part in tables:
        table = table[part]
    assert table.get(last) != value
    table[last] = value
    assert json.loads(json.dumps(changed)) == json.loads(json.dumps(wanted))


# Mistakes.


@pytest.mark.parametrize(
    "override, message",
    [
        ("objective.weigth_cap=1", r"\[objective\] has no key 'weigth_cap'; did you mean 'weight"),
        ("objective.metod='tis'", "has no key 'metod'; did you mean 'method'"),
        ("objective.method=ftis", "objective.method is 'ftis'; choose one of nois, vis, tis, f-"),
        ("objective.importance=none", "importance = 'truncated', but importance is 'none'; drop"),
        ("objective.beta=-1", "objective.beta is -1: Expected `float` >= 0.0"),
        ("node.small.adam_betas=[0.9]", r"adam_betas is \[0.9\]; expected a list of 2"),
        ("node.small.lora={targets='all'}", "is 'all'; expected a list, or 'all-linear'"),
        ("node.small.lora={targets=[]}", r"\[node.small.lora\] targets names no layer"),
        ("objective.weight_cap=nan", "objective.weight_cap is nan; expected a finite number"),
        ("plan=diagonal", "plan is 'diagonal'; choose one of vertical, horizontal"),
        ("rounds=true", "rounds is True: Expected `int`, got `bool`"),
        ("objective=3", "objective is 3; expected a table with importance, filter, others"),
        ("node={small={}}", r"\[node.small\] names no model; give it one, or an engine"),
        ("node=[{model='a'}]", r"expected one table for each name, \[node.NAME\]"),
        ("node={}", r"the run has no node; add a table \[node.NAME\] with a model"),
        ("node.small=1", "node.small is 1; expected a table with model"),
        ("node.smal.sampling_rows=8", "no node is named 'smal'; did you mean 'small'"),
        ("node.small.xyzzy=8", r"\[node.small\] has no key 'xyzzy'; there is model, weight"),
        ("node.small.weight_decay=0.1", r"\[node.small\] weight_decay is 0.1, but optimizer"),
        ("shares=speed", r"shares is 'speed'.*pace = 'free'.*weight"),
        ("node.small.server.url=x", r"no key 'server'; its table is \[node.small.engine\], name"),
        ("rouns=3", "the run has no key 'rouns'; did you mean 'rounds'"),
        # Other tools' names, and keys of another table.
        ("node.small.lr=1", r"\[node.small\] has no key 'lr'; did you mean 'learning_rate'\?$"),
        ("kl_coef=0.1", r"the run has no key 'kl_coef'; did you mean 'beta' in \[objective\]\?"),
        ("report_to='wandb'", r"did you mean 'to' in \[log\]\?"),
        ("device=cuda", r"has no key 'device'; did you mean 'device' in \[node.NAME\]\?"),
        ("max_new_tokens=9", r"did you mean 'max_new_tokens' in \[sampling\] or \[evaluation\]"),
        ("plan.depth=3", "plan is 'vertical', which is no table"),
        ("seed", "'seed' is not of the form key=value"),
        ("task.name=digit", "task.name is 'digit'; did you mean 'digits'"),
        ("task.name=3", r"\[task\] needs a name; choose one of digits"),
        ("task={name='digits', path='x'}", r"\[task\] has no key 'path'; did you mean 'path' in "),
        ("task={name='gsm8k', pat='x'}", r"\[task\] has no key 'pat'; did you mean 'path'"),
        ("task={name='hub'}", r"\[task\] needs 'dataset', which has no default"),
        ("task={name='reasoning-gym', dataset='gcd', parameters=3}", "3; expected a table$"),
        ("reward=[{}]", r"\[reward.0\] needs 'function', which has no default"),
        ("reward='a:b'", r"reward is 'a:b'; expected one table for each, \[\[reward\]\]"),
        ("reward=[{function='a.py'}]", r"function is 'a.py'; expected 'task' or 'FILE.py:NAME' or"),
        ("task={name='jsonl', answer=''}", r"\[task\] answer is empty, so its grading has not"),
        ("out_of_distribution={name='jsonl', answer=''}", r"\[out_of_distribution\] answer is em"),
        ("node.small.engine.name=vlm", "node.small.engine.name is 'vlm'; did you mean 'vllm'"),
        ("node.small.lora=3", "node.small.lora is 3; expected a table with r, alpha, dropout"),
        ("sampling.stop='x'", r"sampling.stop is 'x'; expected a list, such as \['x'\]"),
        ("sampling.stop=['x', 3]", "sampling.stop is 3: Expected `str`, got `int`"),
        ("log.callback=hook", r"\[log\] callback is 'hook'; expected 'FILE.py:NAME' or 'MODULE"),
        ("swarm.listen=['here:1']", "swarm.listen is 'here:1'; expected tcp/HOST:PORT or tls/H"),
        ("swarm.connect=['udp/there:1']", "swarm.connect is 'udp/there:1'; expected tcp/HOST:PORT"),
        ("swarm={listen=['tcp/h:1'], tls={folder='x'}}", r"swarm.listen is 'tcp.*expected 'tls"),
        ("swarm.transport=zeno", "swarm.transport is 'zeno'; choose one of zenoh"),
        ("swarm.transport=memory", "swarm.transport is 'memory'; .* run them with --one-process"),
        ("task={name='reasoning-gym', dataset='gcd', parameters={a=[1, nan]}}", "a.1 is nan; exp"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_the_way_out(toml, override, message):
    with pytest.raises(ConfigError, match=message):
        load(toml(TWO_NODES), [override])


def test_each_name_of_another_tool_stands_for_a_key_of_a_recipe():
    assert [key for key in KEYS.values() if not place_hint(key, [], "x")] == []
    # Those of docs/trl.md that are one key here.
    page = (Path(__file__).parents[2] / "docs" / "trl.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (?:`\[.*?\] |`)(\w+)` \|", page, re.MULTILINE)
    said = {theirs: (ours, place_hint(theirs, [], "x")) for theirs, ours in rows}
    assert len(said) > 8
    assert [(t, *told) for t, told in said.items() if f"mean {told[0]!r} in" not in told[1]] == []


@pytest.mark.parametrize("name", ["Small", "", "\x1b[31m"])
def test_a_node_whose_name_is_no_folder_is_refused(name):
    with pytest.raises(ConfigError, match="a node's name is 1 to 32 of a-z, 0-9 and '-'"):
        from_tree({"name": "x", "node": {name: {"model": "x"}}})


@pytest.mark.parametrize("tree", [{}, {"name": "x"}, {"node": {"a": {"model": "x"}}}])
def test_a_run_needs_a_name_and_nodes(tree):
    with pytest.raises(ConfigError, match=r"the run needs '(name|node)', which has no default"):
        from_tree(tree)


@pytest.mark.parametrize("tree", [[], "x", 3, None, math.nan])
def test_a_recipe_that_is_no_table_is_refused(tree):
    with pytest.raises(ConfigError, match="expected a table with a name and nodes"):
        from_tree(tree, ["seed=1"])


def test_a_file_that_cannot_be_read_is_named(toml, tmp_path):
    absent = tmp_path / "absent.toml"
    with pytest.raises(ConfigError, match=r"no recipe .*absent\.toml; `potluck new .*absent\.toml"):
        load(absent)
    with pytest.raises(ConfigError, match=r"run\.toml: Invalid value \(at line 1, column 8\)"):
        load(toml("name = ]"))
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path)  # a folder
    (tmp_path / "run.json").write_text('{"name": ')
    with pytest.raises(ConfigError, match=r"cannot read .*run\.json: Expecting value"):
        load(tmp_path / "run.json")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(ConfigError, match=r"cannot read .*latin\.toml: 'utf-8' codec"):
        load(tmp_path / "latin.toml")
    for name, text in (("deep.json", ""), ("deep.toml", "a = ")):  # lists without end
        (tmp_path / name).write_text(text + "[" * 100_000)
        with pytest.raises(ConfigError, match="cannot read"):
            load(tmp_path / name)


SERVER = {"url": "http://x:8000", "model": "served", "sleeps": True}


def test_a_server_of_an_older_recipe_json_is_the_engine_of_today(toml, tmp_path):
    run = load(toml(TWO_NODES))
    tree = json.loads(json.dumps(as_tree(run)))
    for node, server in (("small", SERVER), ("large", None)):
        del tree["node"][node]["engine"]
        tree["node"][node]["server"] = server
    old = tmp_path / "recipe.json"
    old.write_text(json.dumps(tree))
    found = load(old, ["rounds=3"]).node
    assert load(old, ["rounds=3"]).rounds == 3
    assert found["small"].engine == VllmOptions(**SERVER)
    assert found["large"] == run.node["large"]
    assert isinstance(found["large"].engine, HFOptions)


def test_reading_a_run_leaves_the_method_in_the_tree_it_was_read_from():
    tree = {"name": "x", "objective": {"method": "vis"}, "node": {"a": {"model": "x"}}}
    assert from_tree(tree).objective.importance == "vanilla"
    assert tree["objective"] == {"method": "vis"}


# What a recipe chooses by name promises the same; every recipe that ships is read.


ENGINES = {str(options.__struct_config__.tag): options for options in get_args(AnyEngine)}
RECIPES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.toml"))
VLLM = VllmOptions(url="http://x", model="x", tolerance=0.5)


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_does_what_an_engine_must(name):
    verbs = ["build", "log_probability_tolerance"]
    base = EngineOptions
    if not ENGINES[name].has_weights:
        verbs, base = ["open"], TextOptions
    if ENGINES[name].trains:
        verbs = ["reads", "uses"]
    for verb in verbs:
        assert getattr(ENGINES[name], verb) is not getattr(base, verb)


def test_engines_tell_whether_they_have_weights_their_memory_and_tolerance():
    assert {name for name in ENGINES if not ENGINES[name].has_weights} == {"openai", "file"}
    for elsewhere in (VLLM, ENGINES["file"](path="x")):
        assert elsewhere.bytes_needed(None) == 0
    assert VLLM.log_probability_tolerance("float32") == 0.5
    tolerance = HFOptions().log_probability_tolerance
    assert tolerance("float32") < tolerance("bfloat16")


def test_the_hub_is_named_by_a_task_that_reads_it():
    options = {
        "gsm8k": {"path": "here"},
        "math500": {"path": "here"},
        "hub": {"dataset": "a/b"},
        "reasoning-gym": {"dataset": "gcd"},
    }
    with_path = {name: TASKS[name](**options.get(name, {})).hub_name for name in TASKS}
    assert {name for name, hub in with_path.items() if hub} == {"hub"}
    assert TASKS["gsm8k"]().hub_name == "openai/gsm8k"
    assert TASKS["math500"]().hub_name == "HuggingFaceH4/MATH-500"


@pytest.mark.parametrize("path", [*RECIPES, potluck.STARTING_RECIPE], ids=lambda path: path.name)
def test_a_recipe_that_ships_is_read_and_its_built_in_models_are_there(path):
    config = potluck.load(path)
    for node in config.node.values():
        if node.model.startswith("builtin:"):
            assert (Path(locate(node.model)) / "model.safetensors").exists()


def with_variables(**variables):
    node = {"model": "m", "chat_template_kwargs": variables}
    return from_tree({"name": "r", "task": {"name": "digits"}, "node": {"a": node}})


def test_a_node_gives_its_chat_template_variables():
    variables = {"enable_thinking": False, "budget": 5, "effort": "low", "skip": ("a", "b")}
    run = with_variables(**variables)
    assert dict(run.node["a"].chat_template_kwargs) == variables
    assert from_tree(json.loads(json.dumps(as_tree(run)))) == run


@pytest.mark.parametrize(
    "variables",
    [
        *({name: "x"} for name in ("messages", "tools", "add_generation_prompt", "tokenize")),
        *({name: "x"} for name in ("documents", "strftime_now", "raise_exception", "bos_token")),
        {"": 1},
        {"1a": 1},
        {"a b": 1},
        {"a": {"b": 1}},
        {"a": [[1]]},
        {f"v{number}": 1 for number in range(33)},
    ],
)
def test_a_variable_that_no_recipe_may_set_is_refused(variables):
    with pytest.raises(ConfigError, match="chat_template_kwargs") as caught:
        with_variables(**variables)
    assert "\n" not in str(caught.value)


def test_a_recipe_that_an_editor_has_begun_with_a_mark_is_read(tmp_path):
    text = 'name = "r"\r\ntask = {name = "digits"}\r\nnode.a = {model = "builtin:digits-small"}\r\n'
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / "r.toml").write_bytes(text.encode(encoding))
        assert load(tmp_path / "r.toml").name == "r"
