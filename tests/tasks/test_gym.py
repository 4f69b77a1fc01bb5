"""reasoning-gym: mostly through a stand-in of the library, which is an extra; then the real one."""

import sys
import time
from pathlib import Path
from typing import get_args

import pytest

import stand_in_gym
from potluck.tasks import Split, TaskError
from potluck.tasks import gym as gym_module
from potluck.tasks.base import overlaps
from potluck.tasks.gym import LONGEST_ANSWER, ONLY, REFUSED, ReasoningGymOptions
from tasks.graded import graded, tagged


@pytest.fixture
def library(monkeypatch):
    stand_in_gym.install(monkeypatch)


def task(dataset="powers", **options):
    return ReasoningGymOptions(dataset=dataset, **{"size": 20, "held_out": 5} | options).make()


def test_the_first_problems_validate_and_the_rest_train(library):
    made = task()
    ids = [f"reasoning-gym/powers/{i}" for i in range(25)]
    assert list(made.ids("validation")) == ids[:5]
    assert list(made.ids("train")) == ids[5:]
    assert list(made.ids("out-of-distribution")) == []
    problem = made.problem(ids[7])
    assert (problem.question, problem.answer) == ("2 to the power of 7?", "7")
    assert "<answer>" in problem.system
    assert task(system_prompt="p").problem(ids[1]).system == "p"
    assert task(tags=False).problem(ids[1]).system == ""
    assert made.problem(ids[0]).answer == ""  # but a verifier


def test_other_parameters_are_what_is_out_of_distribution(library):
    made = task(parameters={"base": 3}, other_parameters={})
    ids = made.ids("out-of-distribution")
    assert list(ids) == [f"reasoning-gym/powers/other/{i}" for i in range(5)]
    assert made.problem(ids[1]).question == "2 to the power of 1?"
    assert made.problem("reasoning-gym/powers/1").question == "3 to the power of 1?"
    with pytest.raises(TaskError, match="powers has other_parameters equal to its parameters"):
        task(other_parameters={})


def test_a_question_that_stood_before_is_left_out_so_no_two_splits_share_one(library):
    made = task(parameters={"modulus": 8}, other_parameters={"modulus": 12})
    assert [len(made.ids(split)) for split in get_args(Split)] == [3, 5, 0]
    assert not list(overlaps(made))


def test_the_verifier_decides_and_its_score_is_between_0_and_1(library):
    made = task()
    answers = ["5", " 5\n", "6", *(f"score {x}" for x in ("0.5", "7", "-7", "nan")), "raise"]
    answers += ["score x"]
    rewards = [1, 1, 0.1, 0.5, 1, 0, 0, 0, 0]
    assert graded(made, *map(tagged, answers)) == rewards
    assert graded(made, *answers) == [0] * len(answers)
    assert graded(task(tags=False), *answers) == rewards
    long = graded(task(tags=False), "5" * LONGEST_ANSWER, "5" * (LONGEST_ANSWER + 1))
    assert long == [0.1, 0]  # the longer one is not looked at
    assert graded(made, tagged("5"), end="length") == [0]
    assert all(type(reward) is float for reward in graded(made, *map(tagged, answers)))


def test_what_a_verifier_would_run_is_let_through_only_where_it_is_harmless(library):
    made = task("countdown", tags=False)
    for harmless in ("5", "(1 + 2) * 3 / 4 - 5", " 5\n"):
        assert graded(made, harmless)[0] > 0, harmless
    for harm in ("__import__('os')", "9**9", "9* *9", "x", "1e9", "(1).real", "1" * 151, "5_0",
                 "\u0665", "1\n2", "1 +\n2"):  # fmt: skip
        assert graded(made, harm) == [0], harm


def test_another_version_of_the_library_makes_another_task(library, monkeypatch):
    before = task().digest
    monkeypatch.setattr(gym_module.importlib.metadata, "version", lambda name: "0.2")
    assert task().digest != before


@pytest.mark.parametrize(
    "options, message",
    [
        ({"dataset": "power"}, "is 'power', which reasoning-gym has not; did you mean 'powers'?"),
        ({"parameters": {"bas": 3}}, r"cannot make powers with {'bas': 3} \(TypeError: .*'bas'"),
        ({"parameters": {"seed": 3}}, r"cannot make powers .*\(TypeError: .*'seed'"),
        ({"parameters": {"base": -1}}, r"cannot make powers with .* \(AssertionError: base must"),
        ({"size": 199_996}, "200001 problems are too many; at most 200000"),
    ],
)
def test_a_mistake_is_told_in_one_line(library, options, message):
    with pytest.raises(TaskError, match=message) as caught:
        task(**options)
    assert "\n" not in str(caught.value)


def test_kinds_whose_verifier_runs_what_it_reads_are_refused(library):
    for dataset in REFUSED:
        with pytest.raises(TaskError, match=f"is '{dataset}', but it.*; choose another"):
            task(dataset)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(TaskError, match=r"pip install 'potluck\[gym\]'"):
        task()


@pytest.fixture(scope="module")
def real():
    """reasoning-gym itself, where it is installed: it is large and wants a C compiler."""
    return pytest.importorskip("reasoning_gym", reason="the extra 'gym' is not installed")


def test_the_real_library_makes_and_grades_its_problems(real):
    options = {"parameters": {"max_terms": 3}, "other_parameters": {"min_terms": 4}}
    made = task("chain_sum", **options)
    assert made.digest == task("chain_sum", **options).digest
    assert [len(made.ids(split)) for split in get_args(Split)] == [20, 5, 5]
    for split in get_args(Split):
        for id in made.ids(split):
            answer = made.problem(id).answer
            assert graded(made, tagged(answer), tagged(f"{answer}1"), id=id)[0] == 1
            assert graded(made, tagged(f"{answer}1"), id=id)[0] < 1


@pytest.mark.parametrize("dataset", ONLY)
def test_what_is_let_through_holds_every_real_answer(real, dataset):
    made = task(dataset, tags=False, size=6, held_out=2)
    for id in made.ids("train"):
        assert graded(made, made.problem(id).answer, id=id) == [1.0]


def test_whatever_of_the_real_library_runs_text_is_known_here(real):
    """A newer version may run answers elsewhere: then look at it, and refuse or allow it."""
    from reasoning_gym.factory import DATASETS

    looked_at = {  # they run what the library itself made up
        "basic_arithmetic", "bitwise_arithmetic", "codeio", "number_sorting",
    }  # fmt: skip
    running = set()
    for name, (kind, _) in DATASETS.items():
        source = Path(sys.modules[kind.__module__].__file__).read_text(encoding="utf-8")
        if any(word in source for word in (" eval(", "(eval(", "exec(", "parse_expr(", "sympify(")):
            running.add(name)
    assert running <= {*REFUSED, *ONLY, *looked_at}


@pytest.mark.parametrize("dataset", ["countdown", "coin_flip", "chain_sum", "sudoku", "jugs"])
def test_hostile_answers_to_the_real_library_earn_nothing_and_no_time(real, dataset, capfd):
    made, began = task(dataset, tags=False, size=3), time.process_time()
    hostile = ["__import__('os').system('echo run')", "9**9**9", "1e999999999", "(" * 140,
               "9" * 150, "[" * 9_000, "1/0", "nan", "-" * 150, "\ud800", "((((9" * 30]  # fmt: skip
    for text in hostile:
        assert graded(made, text)[0] < 0.1, text
    assert time.process_time() - began < 5
    assert "run" not in capfd.readouterr().out
