"""Your data and your reward, from the command line to the checkpoint; the page about them runs."""

import json
import re
import sys
from pathlib import Path

import msgspec
import pytest

import stand_in_gym
from launch.runs import everything_in, sets
from potluck.builder.task import make_task, notes_on
from potluck.config import ConfigError, from_tree
from potluck.tasks import TaskError
from potluck.tasks.environments.task import PlayOptions
from potluck.tasks.named import TASKS
from stand_in_datasets import stand_in

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"
FILES = {"jsonl": "problems.jsonl", "python": "rewards.py", "toml": "own-data.toml"}


@pytest.fixture
def potluck_says(potluck_says, monkeypatch):
    """On a line long enough for any path; all nodes of a run share this process."""
    monkeypatch.setenv("COLUMNS", "1000")
    return lambda *words: potluck_says(*words, *["--one-process"] * (words[0] == "run"))


@pytest.fixture
def fine(potluck_says):
    """Calls a command that goes well; returns what it prints."""

    def call(*words):
        code, out, err = potluck_says(*words)
        assert (code, err) == (0, "")
        return out

    return call


@pytest.fixture
def example(desk):
    """The files of docs/tasks.md; its functions leave a mark when they are imported."""
    section = PAGE.read_text().partition("## An example that runs")[2].partition("\n## ")[0]
    blocks = re.findall(r"```(jsonl|python|toml)\n(.*?)```", section, re.DOTALL)
    assert [policy for policy, _ in blocks] == list(FILES)
    for policy, text in blocks:
        (desk / FILES[policy]).write_text(text)
    rewards = desk / "rewards.py"
    rewards.write_text(rewards.read_text() + "\nopen('imported', 'w').close()\n")
    return desk


FAST = sets("rounds=1", "sampling.max_new_tokens=20", "evaluation.every=0")


def test_the_page_runs_as_it_stands_and_rewards_are_those_of_the_file(example, fine):
    fine("run", "own-data.toml", "--trust-code", *FAST[2:])
    rows = {
        row["sum"]: row
        for row in map(json.loads, (example / "problems.jsonl").read_text().splitlines())
    }
    ids = [f"jsonl/train/{i}" for i in range(6)]
    paid = [
        json.loads(line)
        for node in ("columns", "terse")
        for line in (example / f"runs/own-data/{node}/completions.jsonl").read_text().splitlines()
    ]
    assert len(paid) == 2 * 2 * 2 * 4
    for line in paid:
        row = list(rows.values())[ids.index(line["problem"])]
        right = float(line["text"].endswith(f"#{row['total']}"))
        brief = -len(line["text"]) / 1000 if row["carries"] < 2 else 0
        total = right + brief if line["end"] == "stop" else min(right + brief, 0)
        assert line["reward"] == pytest.approx(total)
    assert {line["reward"] for line in paid} > {0.0}
    last = (example / "runs/own-data/terse/evaluation.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["rewards"].keys() == {"right", "brief"}
    assert json.loads(last)["partial"]
    fine("evaluate", "runs/own-data/terse", "--trust-code")


def test_without_the_flag_nothing_is_imported_and_the_file_is_named(
    example, fine, potluck_says, monkeypatch
):
    before = everything_in(example)
    code, out, err = potluck_says("run", "own-data.toml", *FAST)
    assert (code, out, err.count("\n")) == (2, "", 1)
    named = "[[reward]] 'rewards.py:right', [[reward]] 'rewards.py:brief'"
    assert f"{named}; read it, then allow" in err
    assert "--trust-code" in err
    with monkeypatch.context() as patch:  # that is told before anything slow is imported
        patch.setattr("potluck.cli.training.prepare_process", None)
        assert potluck_says("run", "own-data.toml")[0] == 2
    out = fine("run", "own-data.toml", "--check", *FAST)
    for name in ("right", "brief"):
        assert f"would run {name} in {example}/rewards.py; not without --trust-code" in out
    assert everything_in(example) == before
    out = fine("run", "own-data.toml", "--check", "--trust-code", *FAST)
    assert "would run" not in out
    assert (example / "imported").exists()


def test_a_run_is_resumed_with_the_flag_and_with_the_code_and_data_that_it_had(
    example, fine, potluck_says
):
    fine("run", "own-data.toml", "--trust-code", *FAST)
    (example / "imported").unlink()
    resume = ["run", "own-data.toml", "--resume", *FAST[2:]]
    for words in (resume, ["evaluate", "runs/own-data/terse"]):
        code, _, err = potluck_says(*words)
        assert (code, "--trust-code" in err) == (2, True)
    assert not (example / "imported").exists()
    for changed in ("rewards.py", "problems.jsonl"):
        text = (example / changed).read_text()
        (example / changed).write_text(text.replace("gold", "goal").replace("992", "993"))
        code, _, err = potluck_says(*resume, "--trust-code")
        assert (code, err.count("\n")) == (2, 1)
        assert "its data or the code of its rewards has changed; put back what was there" in err
        (example / changed).write_text(text)
    fine(*resume, "--trust-code")


def test_a_task_without_code_needs_no_flag(example, fine):
    out = fine("run", "own-data.toml", "--check", *sets("reward=[{function='task', weight=2}]"))
    assert "would run" not in out


# What is said of the splits.


def test_an_overlap_is_said_by_the_check(example, potluck_says):
    lines = (example / "problems.jsonl").read_text().splitlines()
    (example / "dev.jsonl").write_text("\n".join(lines[2:4]))
    said = "overlap: 2 of 2 validation problems are also in train, first jsonl/validation/0"
    dev = sets("task.validation='dev.jsonl'")
    _, out, _ = potluck_says("run", "own-data.toml", "--check", *FAST, *dev)
    assert said in " ".join(out.split())
    _, out, _ = potluck_says("run", "own-data.toml", "--check", *FAST)
    assert "overlap: no question is in two of them" in out
    # Rewards are part of the digest, and without trust they are not imported.
    assert "its digest has the reward functions in it" in " ".join(out.split())
    _, out, _ = potluck_says("run", "own-data.toml", "--check", "--trust-code", *FAST)
    assert "; digest " in " ".join(out.split())


def test_validating_on_the_test_set_of_gsm8k_is_said_to_be_what_the_paper_does(gsm8k_path):
    def notes(validation):
        task = {"name": "gsm8k", "path": gsm8k_path, "validation": validation}
        config = from_tree({"name": "x", "task": task, "node": {"a": {"model": "x"}}})
        return notes_on(config, make_task(config))

    (note,) = notes("test")
    assert note.startswith("validation is GSM8K's test set, as in the paper")
    assert notes("train") == []


# Every option does something.


def task_of(example, table, reward=()):
    tree = {"name": "x", "task": table, "reward": list(reward), "node": {"a": {"model": "x"}}}
    task = make_task(from_tree(tree), trust_code=True)
    return task.digest, [list(task.ids(s)) for s in ("train", "validation", "out-of-distribution")]


ROWS = {"question": "sum", "answer": "total", "held_out": 2}
PLAIN = {
    "jsonl": {"name": "jsonl", "path": "problems.jsonl", **ROWS},
    "hub": {"name": "hub", "dataset": "set", **ROWS},
    "reasoning-gym": {"name": "reasoning-gym", "dataset": "powers", "size": 9, "held_out": 3},
}
TABLE = {
    "question": "other",
    "answer": "carries",
    "answer_after": "1",
    "grading": "exact",
    "tolerance": 0.1,
    "tags": False,
    "system_prompt": "Add.",
    "held_out": 3,
    "reward": "hash",
}
OTHERWISE = {
    "jsonl": TABLE | {"path": "more.jsonl", "validation": "more.jsonl",
                      "out_of_distribution": "more.jsonl"},
    "hub": TABLE | {"dataset": "other", "subset": "b", "train": "b", "validation": "b",
                    "out_of_distribution": "b"},
    "reasoning-gym": {"dataset": "countdown", "size": 10, "held_out": 4, "seed": 1,
                      "parameters": {"base": 3}, "other_parameters": {"base": 3}, "tags": False,
                      "system_prompt": "Think.", "reward": "hash"},
}  # fmt: skip


@pytest.fixture
def stand_ins(example, monkeypatch):
    """More files, and stand-ins for the Hub and for reasoning-gym."""
    rows = [
        json.loads(line) | {"other": f"{i}+{i}=", "total": f"1{i}"}
        for i, line in enumerate((example / "problems.jsonl").read_text().splitlines())
    ]
    (example / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (example / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:4]))

    def load_dataset(name, config, *, split):
        return rows[: 6 - (name == "other") - (config == "b") - (split == "b")]

    stand_in_gym.install(monkeypatch)
    monkeypatch.setitem(sys.modules, "datasets", stand_in(load_dataset))


@pytest.mark.parametrize("name", PLAIN)
def test_every_option_of_a_task_of_ones_own_makes_another_task(example, stand_ins, name):
    options = {field.name for field in msgspec.structs.fields(TASKS[name])}
    # What reads other files, or files that would not be read: tests/tasks/test_own_files.py. What
    # is of an environment: tests/tasks/environments/test_task.py. What no option can be without
    # another one: test_table.py, test_choice.py and test_examples.py in tests/tasks.
    plays = {field.name for field in msgspec.structs.fields(PlayOptions)} | {"game", "environment"}
    plays -= set(OTHERWISE[name])
    together = {"last_answer", "options", "answer_as", "examples", "shots", "worked"}
    assert set(OTHERWISE[name]) == options - {"skip_bad", "columns"} - plays - together
    plain = task_of(example, PLAIN[name])
    for option, value in OTHERWISE[name].items():
        other = task_of(example, PLAIN[name] | {option: value})
        assert other[0] != plain[0], option


TRL = """
def polite(completions, **columns):
    return [float("please" in completion[0]["content"]) for completion in completions]

def plain(completions, **columns):
    return [float(completion.endswith("18")) for completion in completions]
"""


def of_messages(example, function, said=None, **options):
    """A task of one row, whose question is messages unless ``said`` is another one."""
    said = said or [{"role": "user", "content": "9+9?"}]
    (example / "trl.py").write_text(TRL)
    (example / "chat.jsonl").write_text(json.dumps({"prompt": said, "answer": 18}))
    table = {"name": "jsonl", "path": "chat.jsonl", "question": "prompt", "held_out": 0}
    reward = {"function": f"trl.py:{function}", **options}
    tree = {"name": "x", "task": table, "reward": [reward], "node": {"a": {"model": "x"}}}
    return make_task(from_tree(tree), trust_code=True)


def test_a_function_gets_messages_where_the_data_holds_them_and_texts_elsewhere(example):
    found = of_messages(example, "polite")
    assert found.digest == of_messages(example, "polite", format="messages").digest
    found = of_messages(example, "plain", said="9+9?")
    assert found.digest == of_messages(example, "plain", said="9+9?", format="text").digest


@pytest.mark.parametrize(
    "options, way_out",
    [
        ({"function": "plain"}, "; it can with format = 'text' in [[reward]]"),
        (
            {"function": "polite", "format": "text"},
            "; it can with format = 'messages' in [[reward]]",
        ),
        ({"function": "polite", "said": "9+9?"}, "; it can with format = 'messages' in [[reward]]"),
    ],
)
def test_a_function_is_tried_once_before_any_model_is_loaded(example, options, way_out):
    with pytest.raises(TaskError, match=re.escape(way_out)) as caught:
        of_messages(example, **options)
    assert str(caught.value).startswith(f"reward 'trl.py:{options['function']}' raised ")
    assert "\n" not in str(caught.value)


def test_long_prompts_are_left_out_in_a_run_and_in_its_evaluation(example, fine, potluck_says):
    rows = (example / "problems.jsonl").read_text().splitlines()
    long = {"sum": "+".join(["1"] * 30) + "=", "total": 30, "carries": 2}
    (example / "problems.jsonl").write_text("\n".join([*rows, json.dumps(long)]))
    whole = sets("sampling.max_total_tokens=30", "sampling.max_new_tokens=10")
    code, _, err = potluck_says("run", "own-data.toml", "--trust-code", *FAST, *whole)
    assert code == 2
    assert "leave out long prompts with sampling.max_prompt_tokens" in err
    limit = [*whole, *sets("sampling.max_prompt_tokens=12")]
    said = (
        "1 of 7 problems have prompts longer than sampling.max_prompt_tokens = 12 and are left out"
    )
    out = fine("run", "own-data.toml", "--check", "--trust-code", *FAST, *limit)
    assert said in out
    out = fine("run", "own-data.toml", "--trust-code", *FAST, *limit)
    assert said in " ".join(out.split())
    fine("evaluate", "runs/own-data/terse", "--trust-code")
    code, _, err = potluck_says(
        "run", "own-data.toml", "--check", *sets("sampling.max_prompt_tokens=96")
    )
    assert (code, err.count("\n")) == (2, 1)
    assert "max_prompt_tokens is 96, which leaves no room to write in below" in err


def test_a_run_without_end_is_checked_in_no_time(example, fine):
    out = fine("run", "own-data.toml", "--check", *sets(f"rounds={10**12}"))
    assert "1000000000000 rounds" in out


def test_rows_without_answers_want_a_reward_and_take_one(example):
    table = PLAIN["jsonl"] | {"answer": ""}
    with pytest.raises(ConfigError, match=r"\[task\] answer is empty"):
        task_of(example, table)
    with pytest.raises(ConfigError, match=r"grade by a \[\[reward\]\] other than 'task'"):
        task_of(example, table, [{"function": "rewards.py:right"}, {"function": "task"}])
    assert task_of(example, table, [{"function": "rewards.py:right"}])
    assert task_of(example, table | {"reward": "hash"})
