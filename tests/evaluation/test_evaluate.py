"""``potluck evaluate``: tiny models, a reward that pays half of all answers, real digits."""

import json
import weakref
from importlib import import_module

import msgspec
import pytest
from rich.cells import cell_len

import potluck
import tiny
from potluck.builder.task import make_task
from potluck.config import ConfigError
from potluck.evaluation.compare import evaluate_models
from potluck.evaluation.grade import grade_samples
from potluck.evaluation.request import EvaluationRequest
from potluck.model import LanguageModel, ModelError
from potluck.node.storage.checkpoint import newest
from potluck.rollout.base import EngineSettings, GreedySampler
from potluck.rollout.hf import HFEngine
from potluck.tasks import TaskError
from potluck.tasks.arithmetic import DigitsOptions

pytestmark = pytest.mark.usefixtures("desk")
SIX = (
    *("task.reward=hash", "evaluation.problems=6", "evaluation.out_of_distribution=3"),
    *("evaluation.max_new_tokens=12", "threads=1"),
)
SMALL = "builtin:digits-small"
THREE = {"k": 2, "samples": 3}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("models") / "tiny", 0)


@pytest.fixture(scope="module", autouse=True)
def tasks():
    """A task takes a moment to make, and is a value: made once."""
    made = {}

    def make(config, *, trust_code, **grading):
        key = msgspec.json.encode((config.task, config.out_of_distribution))
        if key not in made:
            made[key] = make_task(config, trust_code=trust_code, **grading)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("potluck.evaluation.compare.make_task", make)
        yield


@pytest.fixture(scope="module")
def run_folder(model, tmp_path_factory):
    """A run of one round, with whatever a recipe can say of how to ask."""
    recipe = tiny.recipe(
        dict.fromkeys(("north", "south"), model),
        *("rounds=1", "problems_per_round=2", "group_size=2"),
        task={"name": "digits", "reward": "hash", "other_width": 5},
        sampling={"max_new_tokens": 9, "max_total_tokens": 40, "stop": ["a"]},
        evaluation={"problems": 7, "out_of_distribution": 5},
    )
    folder = tmp_path_factory.mktemp("runs") / "asked"
    potluck.run(recipe, folder)
    return folder


def found(model, *overrides, progress=lambda *_: None, **asked):
    """What is found of a model, paid by a hash of its answers."""
    request = EvaluationRequest(model, overrides=[*SIX, *overrides], **{"task": "digits", **asked})
    return evaluate_models(request, progress=progress)


def as_the_run(model, **asked):
    return evaluate_models(EvaluationRequest(str(model), **asked), progress=lambda *_: None)


def per_problem(report, split=0, model="A"):
    return [row[model] for row in report["splits"][split]["per_problem"]]


def values(report, model="A"):
    return {
        (split["split"], measure["measure"]): measure[model]["value"]
        for split in report["splits"]
        for measure in split["measures"]
    }


# What is found.


@pytest.fixture(scope="module")
def alone(model):
    return found(model, **THREE)


@pytest.fixture(scope="module")
def compared(model):
    """A built-in model and the tiny one, of another tokenizer, one after the other in memory."""
    load, alive, steps = LanguageModel.load.__func__, [], []

    def watch(cls, *args, **named):
        assert [each for each in alive if each() is not None] == []
        policy = load(cls, *args, **named)
        alive.append(weakref.ref(policy.network))
        return policy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LanguageModel, "load", classmethod(watch))
        report = found(SMALL, against=model, progress=lambda *step: steps.append(step), **THREE)
    assert len(alive) == 2
    ends = [step for step in steps if step[2] == step[3]]
    assert list(dict.fromkeys(ends)) == [
        (f"{model} {split}", what, count, count)
        for model in "AB"
        for split, n in (("validation", 6), ("out-of-distribution", 3))
        for what, count in (("greedy", n), ("samples", 3 * n))
    ]
    return report


def test_the_report_is_what_a_loop_over_its_own_problems_gives(compared):
    counts = {"validation": 6, "out-of-distribution": 3}
    assert {s["split"]: s["problems"] for s in compared["splits"]} == counts
    some_right = set()
    for at, split in enumerate(compared["splits"]):
        # The problems are the first ones.
        ids = [row["id"] for row in split["per_problem"]]
        assert ids == DigitsOptions().make().ids(split["split"])[: len(ids)]
        for model in "AB":
            rows, number = per_problem(compared, at, model), values(compared, model)
            right = [sum(row["sample_rewards"]) for row in rows]
            assert right == [row["samples_right"] for row in rows]
            some_right |= {*right}
            # Of three answers, two are all wrong in (3 - c) (2 - c) of 6 orders.
            for name, its in (
                ("greedy", [row["greedy_reward"] for row in rows]),
                ("pass@1", [c / 3 for c in right]),
                ("pass@2", [1 - (3 - c) * (2 - c) / 6 for c in right]),
            ):
                assert number[split["split"], name] == pytest.approx(sum(its) / len(rows))
    assert len(some_right) > 2


def test_the_second_model_is_asked_as_if_alone_whatever_its_tokenizer(compared, alone, model):
    assert compared["models"] == {"A": SMALL, "B": model}
    for split in (0, 1):
        assert per_problem(compared, split, "B") == per_problem(alone, split)
    assert per_problem(compared, model="A") != per_problem(compared, model="B")


def test_a_seed_gives_the_same_samples_and_another_one_or_another_drawing_others(alone, model):
    assert found(model, **THREE) == alone
    other = found(model, seed=1, split="validation", **THREE)
    bound = found(model, "sampling.top_k=1", split="validation", **THREE)
    greedy = "validation", "greedy"
    assert values(alone)[greedy] == values(other)[greedy]
    assert per_problem(alone) != per_problem(other)
    for row in per_problem(bound):  # samples of the likeliest token alone are the greedy answer
        assert row["sample_rewards"] == [row["greedy_reward"]] * 3
    assert per_problem(alone) != per_problem(bound)


class Counts:
    """A task that pays the first answer it is shown 1, the second 2, and so on."""

    def rewards(self, problems, completions, texts):
        assert [problem.id for problem in problems] == [c.problem_id for c in completions]
        return [float(at + 1) for at in range(len(completions))]


def test_each_problem_has_the_rewards_of_its_own_answers(model):
    policy = LanguageModel.load(model)
    engine = HFEngine(policy, EngineSettings(2, 60))
    problems = [DigitsOptions().make().problem(id) for id in ("digits/123+456", "digits/700+100")]
    answers = grade_samples(
        policy, engine, Counts(), problems, GreedySampler(), count=3, progress=lambda *_: None
    )
    assert [a.problem_id for a in answers] == [problem.id for problem in problems]
    assert [a.rewards for a in answers] == [(1, 2, 3), (4, 5, 6)]


def test_a_real_task_is_graded_by_its_own_rules_and_the_report_says_how_it_was_asked():
    few = ["evaluation.problems=5", "evaluation.max_new_tokens=48"]
    report = as_the_run(SMALL, task="digits", split="validation", samples=5, overrides=few)
    # It was brought up to answer about a third of its sums when it samples, and none greedily.
    assert values(report)["validation", "greedy"] == 0
    assert 0 < values(report)["validation", "pass@1"] < 1
    assert (report["models"], report["potluck"]) == ({"A": SMALL}, potluck.__version__)
    assert (report["task"]["name"], len(report["task"]["digest"])) == ("digits", 64)
    asked = report["settings"]
    assert (asked["k"], asked["samples"], asked["max_new_tokens"]) == (1, 5, 48)
    assert json.loads(json.dumps(report, allow_nan=False)) == report


# How it is asked.


def test_after_a_run_its_node_is_asked_as_the_run_asked_it(run_folder):
    last = json.loads((run_folder / "south/evaluation.jsonl").read_text().splitlines()[-1])
    wanted = {
        ("validation", "greedy"): last["validation"],
        ("out-of-distribution", "greedy"): last["out_of_distribution"],
    }
    place = run_folder / "south/checkpoints/000001"
    for name in (run_folder / "south/checkpoints", place):
        assert EvaluationRequest(str(name)).resolved().models == (str(place),)
    report = as_the_run(run_folder / "south")
    assert values(report) == wanted
    assert report["models"]["A"] == str(place)
    assert [s["problems"] for s in report["splits"]] == [7, 5]
    assert (report["settings"]["stop"], report["settings"]["max_new_tokens"]) == (["a"], 9)
    assert report["task"]["other_width"] == 5
    assert as_the_run(place, recipe=run_folder) == report
    assert 0 < sum(wanted.values()) < 2  # neither nothing nor everything
    # A task that is named is asked instead of that of the run.
    report = found(str(run_folder / "south"), split="validation")
    assert (report["task"]["other_width"], report["settings"]["stop"]) == (4, [])


def test_a_limit_of_the_whole_text_holds_as_in_the_run(run_folder, model):
    recipe, cut = run_folder / "recipe.json", ["sampling.max_total_tokens=9"]
    # "<bos>123+456=" has 9 tokens, which leaves no room.
    with pytest.raises(potluck.PotluckError, match="max_total_tokens = 9"):
        as_the_run(model, recipe=recipe, overrides=cut)
    # A limit of the evaluation's own means it.
    own = [*cut, "evaluation.max_new_tokens=2"]
    assert as_the_run(model, recipe=recipe, overrides=own)["settings"]["max_new_tokens"] == 2


def test_only_the_split_that_is_asked_for_is_answered(model):
    (split,) = found(model, split="out-of-distribution")["splits"]
    assert (split["split"], split["problems"]) == ("out-of-distribution", 3)
    (split,) = found(model, "evaluation.out_of_distribution=0")["splits"]
    assert split["split"] == "validation"


def test_the_engine_has_the_rows_and_the_number_format_asked_for(model, monkeypatch):
    class Made(Exception):
        pass

    def hear(self, policy, settings):
        raise Made(settings.rows, settings.dtype)

    monkeypatch.setattr(HFEngine, "__init__", hear)
    with pytest.raises(Made, match=r"\(7, 'float32'\)"):
        found(model, "node.model.sampling_rows=7")
    with pytest.raises(Made, match=r"\(5, 'bfloat16'\)"):
        found(model, rows=5, dtype="bfloat16")


# What cannot be.


DIGITS = {"model": SMALL, "task": "digits"}
REFUSED = [
    ({"model": "x"}, ConfigError, "no task is named; add --task NAME, or --recipe"),
    ({"model": "x", "task": "digits", "recipe": potluck.STARTING_RECIPE}, ConfigError,
     "--task and --recipe both name a task"),
    ({**DIGITS, "k": 8, "samples": 4}, ConfigError,
     "pass@8 needs at least 8 samples of each problem, but --samples is 4"),
    ({**DIGITS, "split": "train"}, ConfigError,
     "--split is 'train'; choose one of validation, out-of-distribution, both"),
    ({**DIGITS, "overrides": ["evaluation.problems=0"], "split": "validation"}, ConfigError,
     "there is nothing to evaluate on: the task has 1000 validation, 1000 out-of-dist"),
    ({**DIGITS, "against": "builtin:nobody"}, ModelError, "no built-in model is named 'nobody'"),
    ({"model": SMALL, "task": "gsm8k", "overrides": ["task.path=nowhere"]}, TaskError,
     "there is no folder"),
    ({**DIGITS, "overrides": ["sampling.stop=['<none>']"]}, ModelError,
     "'<none>', which is no token of the model"),
]  # fmt: skip


@pytest.mark.parametrize("asked, kind, said", REFUSED)
def test_what_cannot_be_is_said_before_anything_is_written(asked, kind, said, monkeypatch):
    monkeypatch.setattr(HFEngine, "generate", None)
    with pytest.raises(kind, match=said):
        evaluate_models(EvaluationRequest(**asked), progress=lambda *_: None)


def test_a_run_names_its_nodes_and_a_node_without_a_checkpoint_says_so(desk, run_folder):
    with pytest.raises(ModelError, match=r"is a run, not a model; name .*asked/north, .*south$"):
        newest(str(run_folder))
    with pytest.raises(ModelError, match=r"'.*/nort' is no node of its run; name one of its nodes"):
        EvaluationRequest(f"{run_folder}/nort").resolved()  # not: "no task"
    (desk / "fresh/north/checkpoints").mkdir(parents=True)
    (desk / "fresh/south").mkdir()
    (desk / "fresh/south/metrics.jsonl").touch()
    for node in ("fresh/north", "fresh/north/checkpoints", "fresh/south"):
        with pytest.raises(ModelError, match=f"the node '{node}' has no checkpoint yet"):
            newest(node)
    (desk / "fresh/recipe.json").touch()
    (desk / "fresh/north/checkpoints").rmdir()
    with pytest.raises(ModelError, match="one of its nodes: none has a checkpoint yet"):
        newest("fresh")
    # A folder that is a model is itself, whatever else it holds.
    for model in ("config.json", "adapter_config.json"):
        (desk / "fresh" / model).touch()
        assert newest("fresh") == "fresh"
        (desk / "fresh" / model).unlink()
    assert newest("some/hub-name") == "some/hub-name"


# The command.


@pytest.fixture
def command(potluck_says, model, monkeypatch):
    """(exit code, stdout, stderr) of the command on a tiny model."""
    import_module("potluck.cli.base")  # its consoles are made for good
    monkeypatch.setenv("COLUMNS", "80")
    small = ["--task", "digits", "--problems", "4", "--max-new-tokens", "12", "--device", "cpu"]
    return lambda *words: potluck_says("evaluate", model, *small, *words)


def test_the_command_prints_a_table_on_80_columns_and_options_reach_the_file(
    desk, command, model, monkeypatch
):
    # Of bfloat16 some processors have a line of their own.
    monkeypatch.setattr("potluck.builder.bfloat16.times_as_long", lambda phase: None)
    words = "--set task.reward=hash --set sampling.temperature=0.5 --set sampling.top_k=3"
    words += " --set sampling.top_p=0.9 --k 2 --samples 5 --seed 4 --dtype bfloat16 --rows 3"
    words += f" --against {SMALL} --split validation --json found.json"
    code, out, err = command(*words.split())
    assert (code, err) == (0, "")
    report = json.loads((desk / "found.json").read_text())
    assert [file.name for file in desk.iterdir()] == ["found.json"]
    assert report["settings"] == {
        "k": 2, "samples": 5, "temperature": 0.5, "top_k": 3, "top_p": 0.9, "seed": 4,
        "max_new_tokens": 12, "stop": [], "stop_texts": [], "device": "cpu", "dtype": "bfloat16",
        "rows": 3,
    }  # fmt: skip
    # The models' names are paths, which may be long; they are not folded, to be copied.
    lines = [line for line in out.splitlines() if not line.startswith(("A  ", "B  "))]
    assert max(map(cell_len, lines)) <= 80
    assert f"A  {model}" in out
    assert f"B  {SMALL}" in out
    (split,) = report["splits"]
    assert "validation, 4 problems" in lines
    for measure in split["measures"]:
        row = [measure["measure"]]
        for key, sign in (("A", ""), ("B", ""), ("difference", "+")):
            low, high = (f"{measure[key][bound]:{sign}z.3f}" for bound in ("low", "high"))
            row += [f"{measure[key]['value']:{sign}z.3f}", f"[{low},", f"{high}]"]
        assert row in [line.split() for line in lines]


def test_json_on_stdout_is_alone_there(desk, command):
    code, out, err = command("--json", "-")
    assert (code, json.loads(out)["splits"][0]["measures"][0]["A"]["low"]) == (0, 0)
    assert "greedy" in err
    assert list(desk.iterdir()) == []


@pytest.mark.parametrize(
    "words, said",
    [
        ("--json no/such.json", "there is no folder no"),
        ("--json .", "is a folder"),
        ("--path x", "'path'"),
        ("--k 3 --samples 2", "pass@3"),
    ],
)
def test_what_the_command_cannot_take_is_one_line_beforehand(command, monkeypatch, words, said):
    monkeypatch.setattr(HFEngine, "generate", None)
    code, out, err = command(*words.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("potluck: ")
    assert said in err


def test_a_stopped_evaluation_says_so_and_leaves_the_old_report(desk, command, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    (desk / "found.json").write_text("old")
    monkeypatch.setattr(HFEngine, "generate", stopped)
    code, _, err = command("--json", "found.json")
    assert (code, err) == (130, "potluck: stopped; an evaluation begins anew each time\n")
    assert (desk / "found.json").read_text() == "old"


def test_stop_texts_and_a_plain_prompt_reach_what_is_written(desk, command, model):
    def asked(*more):
        assert command("--set", "task.reward=hash", "--json", "found.json", *more)[0] == 0
        return json.loads((desk / "found.json").read_text())["splits"]

    before = asked()
    stops = json.dumps([str(digit) for digit in range(10)])
    assert asked("--set", f"sampling.stop_texts={stops}") != before
    template = desk / model / "chat_template.jinja"
    template.write_text("{{ messages[-1].content }}a")
    assert asked() != before
    assert asked("--set", "node.model.chat_template=none") == before
    template.unlink()
