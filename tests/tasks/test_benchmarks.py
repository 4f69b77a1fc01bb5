"""GSM8K and MATH-500: what their files, the Hub and a recipe give, their splits, their golds."""

import json
import sys
from pathlib import Path
from typing import get_args

import pytest

from nouns import completion
from potluck.builder.task import make_task, require_problems
from potluck.config import ConfigError, from_tree
from potluck.tasks import Split, TaskError, benchmarks
from potluck.tasks.arithmetic import DigitsOptions
from potluck.tasks.base import WithOutOfDistribution
from potluck.tasks.benchmarks import Gsm8kOptions, Math500Options
from potluck.tasks.grading import TAGS
from potluck.tasks.rewards import HashReward
from stand_in_datasets import stand_in
from tasks.graded import graded, tagged

OPTIONS = {"gsm8k": Gsm8kOptions, "math500": Math500Options}
GOOD = '{"question": "What is 9 + 9?", "answer": "#### 18"}'
ROWS = [
    {"problem": "What is half of $1$?", "answer": r"\frac{1}{2}", "level": 1},
    {"problem": "Simplify $\\sqrt{8}$.", "answer": r" 2\sqrt{2} "},
    {"problem": "How many dollars are two dollars?", "answer": "2"},
]


@pytest.fixture(scope="module")
def real(gsm8k_path):
    return Gsm8kOptions(path=gsm8k_path).make()


@pytest.fixture
def write(tmp_path):
    """A function that writes MATH-500's file."""

    def write(*rows):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (tmp_path / "test.jsonl").write_text("\n".join(lines))
        return str(tmp_path)

    return write


@pytest.fixture(params=OPTIONS)
def files(request, tmp_path, write_gsm8k, write):
    """The name of a data set, and a folder with it."""
    return request.param, write(*ROWS) if request.param == "math500" else write_gsm8k(tmp_path)


def refused(name, path, message):
    with pytest.raises(TaskError, match=message) as caught:
        OPTIONS[name](path=path).make()
    said = str(caught.value)
    assert said.isprintable()
    assert len(said.replace(path, "")) < 200, said


def test_a_line_that_is_no_problem_is_named_with_its_file(files, write):
    """What is no line of any table: test_table.py."""
    name, path = files
    question = {"gsm8k": "question", "math500": "problem"}[name]
    gold, message = {"gsm8k": ("#### 1 #### 2", "has ' 1 #### 2' as"),
                     "math500": ("\x1b[2J", "of 'answer'; use print")}[name]  # fmt: skip
    for line, said in (
        ({question: "9?", "answer": gold}, message),
        ({"answer": "#### 18"}, f"has no column '{question}'"),
    ):
        write(GOOD.replace("question", question), line)
        refused(name, path, f"/test.jsonl, line 2 .*{said}")


def test_a_folder_or_file_that_is_not_there_or_holds_nothing_is_named(files, tmp_path):
    name, path = files
    expected = {"gsm8k": "expected .*train.jsonl and test", "math500": "expected .*of MATH-500"}
    nowhere = rf"task.path: there is no folder /.*nowhere; {expected[name]}"
    refused(name, f"{path}/nowhere", nowhere)
    for file in tmp_path.iterdir():
        kept = file.read_bytes()
        file.write_bytes(b"\n\n")
        refused(name, path, f"{file.name} holds no problem; expected one")
        file.unlink()
        refused(name, path, f"cannot read .*/{file.name} .*{expected[name]}.* in task.path")
        file.write_bytes(kept)


@pytest.fixture
def hub(monkeypatch):
    def put(load_dataset):
        monkeypatch.setitem(sys.modules, "datasets", load_dataset and stand_in(load_dataset))

    return put


def test_the_hub_gives_the_same_task_as_the_files(files, hub):
    name, path = files

    def load_dataset(place, config, *, split):
        expected = {"gsm8k": ("openai/gsm8k", "main"), "math500": ("HuggingFaceH4/MATH-500", None)}
        assert (place, config) == expected[name]
        lines = Path(path, f"{split}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    hub(load_dataset)
    assert OPTIONS[name]().make().digest == OPTIONS[name](path=path).make().digest


def test_without_the_library_the_error_names_the_extra_and_files_do_without(hub, files):
    hub(None)
    name, path = files
    with pytest.raises(TaskError, match=r"pip install 'potluck\[data\]', or download .* task.path"):
        OPTIONS[name]().make()
    assert OPTIONS[name](path=path).make()


def test_without_the_hub_the_error_says_why_and_names_the_other_way(hub):
    def load_dataset(name, config, *, split):
        raise ConnectionError("no\nroute")

    hub(load_dataset)
    with pytest.raises(TaskError, match=r"\(ConnectionError: no\); .*or download .* task.path"):
        Gsm8kOptions().make()


@pytest.mark.parametrize("reason", ["Connection error.", "404, there is no such data set"])
def test_a_proxy_is_named_where_the_hub_is_not_reached(hub, monkeypatch, reason):
    def load_dataset(name, config, *, split):
        raise ValueError(reason)

    hub(load_dataset)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(TaskError, match="cannot load openai/gsm8k from the Hub") as caught:
        Gsm8kOptions().make()
    told = (
        "asked through the proxy http://127.0.0.1:9 of https_proxy: add huggingface.co to no_proxy"
    )
    assert (told in str(caught.value)) == ("Connection" in reason)


RESPELLED = ("{:,}.0", " $\\boxed{{ {:,} }}$.\n")


def test_every_gold_of_the_test_file_is_right_however_it_is_spelled_and_for_its_problem_only(real):
    problems = [real.problem(f"gsm8k/test/{i}") for i in range(1319)]
    finished = [completion(problem=p.id) for p in problems]
    for spelling in RESPELLED:
        texts = [tagged(spelling.format(int(p.answer))) for p in problems]
        assert real.rewards(problems, finished, texts) == [1.0] * 1319, spelling
    following = [*problems[1:], problems[0]]
    rewards = real.rewards(problems, finished, [tagged(p.answer) for p in following])
    assert rewards == [a.answer == b.answer for a, b in zip(problems, following, strict=True)]


def test_the_real_splits_and_digest_are_the_same_for_ever(real, gsm8k_path):
    """Golden: two runs are compared only where they had the same problems."""
    sizes = [len(real.ids(split)) for split in ("train", "validation", "out-of-distribution")]
    assert sizes == [7473 - 512, 512, 0]
    first = [f"gsm8k/train/{i}" for i in (1338, 6870, 7147)]
    assert real.ids("validation")[:3] == first
    assert real.ids("train")[:2] == ["gsm8k/train/1", "gsm8k/train/2"]
    digest = Gsm8kOptions(path=gsm8k_path, system_prompt="p").make().digest
    assert digest == "54c44a51ca21868d8480a80b654e8accd339f207bde50f9e3d8bdc15fbc4f898"
    first = real.problem("gsm8k/test/0")
    assert first.question.startswith("Janet\u2019s ducks lay 16 eggs")
    assert first.answer == "18"


def test_the_paper_validates_on_the_first_512_of_test_and_trains_on_all_of_train(made_up_path):
    task = Gsm8kOptions(path=made_up_path, validation="test").make()
    assert list(task.ids("train")) == [f"gsm8k/train/{i}" for i in range(540)]
    assert list(task.ids("validation")) == [f"gsm8k/test/{i}" for i in range(512)]
    # Outside every split, and known.
    assert task.problem("gsm8k/test/529").answer == "530"


def test_the_gold_is_the_number_after_the_mark_without_its_commas(tmp_path):
    row = {"question": "How many?", "answer": "1,000 #s and 80.\n####  1,234,080 \n"}
    for name in ("train.jsonl", "test.jsonl"):
        (tmp_path / name).write_text(json.dumps(row))
    task = Gsm8kOptions(path=str(tmp_path), validation="test").make()
    assert task.problem("gsm8k/train/0").answer == "1234080"


def test_all_of_it_is_out_of_distribution(write):
    task = Math500Options(path=write(*ROWS)).make()
    assert [len(task.ids(split)) for split in get_args(Split)] == [0, 0, 3]
    problem = task.problem("math500/1")
    assert (problem.question, problem.answer) == (ROWS[1]["problem"], r"2\sqrt{2}")
    assert problem.system == benchmarks.MATH500_PROMPT


def test_the_real_problems_and_their_digest_are_the_same_for_ever(math500_path):
    task = Math500Options(path=math500_path, system_prompt="p").make()
    assert len(task.ids("out-of-distribution")) == 500
    assert task.problem("math500/0").answer == r"\left( 3, \frac{\pi}{2} \right)"
    assert task.problem("math500/499").answer == r"106^\circ"
    assert task.digest == "1388ef900bb10174c7d7f1349f46a763deb041f4733d8c27083f107ab849171d"


def test_right_is_the_format_and_the_answer_together_for_the_question(write):
    task = Math500Options(path=write(*ROWS)).make()
    answers = (r"2\sqrt{2}", r"\boxed{\sqrt{2}\cdot 2}", r"3\sqrt{2}", "2.828427", "")
    outside = (r"2\sqrt{2}", tagged(r"2\sqrt{2}") + ".")
    assert graded(task, *map(tagged, answers), *outside, id="math500/1") == [1, 1] + [0] * 5
    assert graded(task, tagged(r"\$2"), id="math500/2") == [1]
    assert graded(task, tagged(r"\$0.50"), id="math500/0") == [0]


def test_an_unfinished_completion_costs_no_algebra(write, monkeypatch):
    task = Math500Options(path=write(*ROWS)).make()
    monkeypatch.setattr("potluck.tasks.math.pool.shared_workers", None)
    assert graded(task, tagged(r"\sqrt{2} \cdot 2"), id="math500/1", end="length") == [0]


def test_without_tags_a_number_counts_if_it_is_the_last_one(made_up_path):
    task = Gsm8kOptions(path=made_up_path, tags=False).make()
    id = "gsm8k/train/17"
    right = ("18", "17 + 1 = 18.", "It is 18 eggs.", "17 #### 18", r"\boxed{18}", tagged("18"))
    wrong = ("18 and not 17", "17", "eighteen", "36/2", "#### 17\n18", "")
    assert graded(task, *right, *wrong, id=id) == [1] * len(right) + [0] * len(wrong)
    assert graded(task, "18", id=id, end="length") == [0]
    assert task.problem(id).system == ""
    tags = Gsm8kOptions(path=made_up_path).make()
    assert graded(tags, "18", tagged("18"), id=id) == [0, 1]
    assert task.digest != tags.digest
    assert [task.ids(split) for split in get_args(Split)] == [
        tags.ids(split) for split in get_args(Split)
    ]


def test_without_tags_a_problem_of_math_counts_by_its_last_box(write):
    task = Math500Options(path=write(*ROWS), tags=False).make()
    right = (r"\boxed{2\sqrt{2}}", r"As $\sqrt8 = 2\sqrt2$: $\boxed{2\sqrt2}$. Done.",
             r"\boxed{8}? No: \boxed{2\sqrt{2}}", tagged(r"\boxed{2\sqrt{2}}"))  # fmt: skip
    wrong = (r"2\sqrt{2}", r"\boxed{2\sqrt{2}} or \boxed{3}", r"\boxed{2\sqrt{2}", r"\boxed{}",
             r"\boxed{2\sqrt{2}, 3}", tagged(r"2\sqrt{2}"))  # fmt: skip
    assert graded(task, *right, *wrong, id="math500/1") == [1] * 4 + [0] * 6
    asked = task.problem("math500/1").system
    assert asked == benchmarks.BOX_PROMPT
    assert not any(tag in asked for tag in TAGS)
    tags = Math500Options(path=write(*ROWS)).make()
    assert task.digest != tags.digest


@pytest.mark.parametrize("name", OPTIONS)
def test_the_grading_and_the_prompt_of_the_recipe_hold_without_tags(name, made_up_path, write):
    path = made_up_path if name == "gsm8k" else write(*ROWS)
    id = "gsm8k/train/17" if name == "gsm8k" else "math500/2"
    text = "18" if name == "gsm8k" else r"\boxed{2}"
    plain = OPTIONS[name](path=path, tags=False).make()
    verify = OPTIONS[name](path=path, tags=False, grading="math-verify").make()
    assert graded(verify, text, "none", id=id) == [1, 0]
    brief = OPTIONS[name](path=path, tags=False, system_prompt="Be brief.").make()
    tagged_brief = OPTIONS[name](path=path, system_prompt="Be brief.").make()
    assert brief.problem(id) == tagged_brief.problem(id)
    assert brief.problem(id).system == "Be brief."
    assert len({plain.digest, verify.digest, brief.digest, tagged_brief.digest}) == 4


def recipe(**tables):
    return from_tree({"name": "a", "node": {"small": {"model": "builtin:digits-small"}}} | tables)


def test_a_recipe_names_it_and_every_option_reaches_it(write):
    table = {"name": "math500", "path": write(*ROWS)}

    def made(**options):
        return make_task(recipe(task=table | options))

    task = Math500Options(path=table["path"]).make()
    assert made().digest == task.digest
    assert made(system_prompt="Be brief.").problem("math500/0").system == "Be brief."
    assert made(reward="hash").digest == HashReward(task).digest
    plain = made(grading="math-verify")
    assert graded(plain, tagged("1-0.5"), id="math500/0") == [1]
    assert graded(task, tagged("1-0.5"), id="math500/0") == [0]
    assert plain.digest != task.digest


def test_it_cannot_be_trained_on_and_takes_the_place_of_anothers_out_of_distribution(write):
    table = {"name": "math500", "path": write(*ROWS)}
    config = recipe(task=table)
    with pytest.raises(ConfigError, match=r"no problems to train on; name it under \[out_of_dis"):
        require_problems(config, make_task(config))
    config = recipe(task={"name": "digits"}, out_of_distribution=table)
    task, digits = make_task(config), DigitsOptions().make()
    require_problems(config, task)
    assert task.ids("train") == digits.ids("train")
    assert task.ids("validation") == digits.ids("validation")
    assert list(task.ids("out-of-distribution")) == [f"math500/{i}" for i in range(3)]
    hashed = recipe(task={"name": "digits"}, out_of_distribution=table | {"reward": "hash"})
    assert len({task.digest, digits.digest, make_task(hashed).digest}) == 3


def test_each_problem_is_graded_by_the_rules_of_its_own_task(write):
    task = WithOutOfDistribution(DigitsOptions().make(), Math500Options(path=write(*ROWS)).make())
    asked = ["digits/1+2", "math500/0", "digits/1+2", "math500/0", "math500/1"]
    texts = ["#3", tagged("0.5"), tagged("3"), "#0.5", tagged(r"\sqrt2\cdot 2")]
    problems = [task.problem(id) for id in asked]
    completions = [completion(problem=id) for id in asked]
    assert task.rewards(problems, completions, texts) == [1, 1, 0, 0, 1]


def test_a_task_that_has_nothing_elsewhere_or_shares_problems_is_refused(made_up_path):
    with pytest.raises(TaskError, match=r"no out-of-distribution problems; choose .* math500"):
        WithOutOfDistribution(DigitsOptions().make(), Gsm8kOptions(path=made_up_path).make())
    with pytest.raises(TaskError, match=r"has the problem 'digits/\d+\+\d+', which is one of"):
        WithOutOfDistribution(DigitsOptions().make(), DigitsOptions(width=4, other_width=3).make())
