"""reasoning-gym: mostly through a stand-in of the library, which is an extra; then the real one."""

import sys
import time
from pathlib import Path
from typing import get_args

import pytest

import stand_in_gym
from nouns import completion
from potluck.tasks import Split, TaskError
from potluck.tasks import gym as gym_module
from potluck.tasks.base import overlaps
from potluck.tasks.gym import LONGEST_ANSWER, ONLY, REFUSED, ReasoningGymOptions


@pytest.fixture
def library(monkeypatch):
    stand_in_gym.install(monkeypatch)


def task(dataset="powers", **options):
    return ReasoningGymOptions(dataset=dataset, **{"size": 20, "held_out": 5} | options).make()


def scored(made, *texts, end="stop", id=None):
    problem = made.problem(id or made.ids("train")[0])
    return made.rewards(
        [problem] * len(texts), [completion(problem=problem.id, end=end) for _ in texts], texts
    )


def tagged(answer):
    return f"<think>x</think><answer>{answer}</answer>"


def test_the_first_problems_validate_and_the_rest_train(library):
    made = task()
    ids = [f"reasoning-gym/powers/{i}" for i in range(25)]
    assert list(made.ids("validation")) == ids[:5]
    assert list(made.ids("train")) == ids[5:]
    assert list(made.ids("out-of-distribution")) == []
    problem = made.problem(ids[7])
    assert (problem.question, problem.answer) == ("2 to the power of 7?", "7")
    assert "<answer>" in problem.system


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


def test_a_problem_may_have_no_answer_but_its_verifier(library):
    made = task()
    assert made.problem("reasoning-gym/powers/0").answer == ""


def test_the_verifier_decides_and_its_score_is_between_0_and_1(library):
    made = task()
    answers = (
        "5",
        " 5\n",
        "6",
        "score 0.5",
        "score 7",
        "score -7",
        "score nan",
        "raise",
        "score x",
    )
    rewards = [1, 1, 0.1, 0.5, 1, 0, 0, 0, 0]
    assert scored(made, *map(tagged, answers)) == rewards
    assert scored(made, *answers) == [0] * len(answers)
    assert scored(task(tags=False), *answers) == rewards
    assert scored(made, tagged("5"), end="length") == [0]
    assert all(type(reward) is float for reward in scored(made, *map(tagged, answers)))


def test_an_answer_that_is_too_long_is_not_looked_at(library, monkeypatch):
    made = task(tags=False)
    assert scored(made, "5" * LONGEST_ANSWER) == [0.1]
    assert scored(made, "5" * (LONGEST_ANSWER + 1)) == [0]


def test_what_a_verifier_would_run_is_let_through_only_where_it_is_harmless(library):
    made = task("countdown", tags=False)
    for harmless in ("5", "(1 + 2) * 3 / 4 - 5", " 5\n"):
        assert scored(made, harmless)[0] > 0, harmless
    for harm in ("__import__('os')", "9**9", "9* *9", "x", "1e9", "(1).real", "1" * 151, "5_0",
                 "\u0665", "1\n2", "1 +\n2"):  # fmt: skip
        assert scored(made, harm) == [0], harm


def test_the_digest_tells_everything_apart(library, monkeypatch):
    made = [
        task(), task(size=21), task(held_out=6), task(seed=1), task(parameters={"base": 3}),
        task(other_parameters={"base": 3}), task(tags=False), task(system_prompt="p"),
        task("countdown"),
    ]  # fmt: skip
    monkeypatch.setattr(gym_module.importlib.metadata, "version", lambda name: "0.2")
    assert len({one.digest for one in [*made, task()]}) == len(made) + 1
    assert task().digest == task().digest


def test_a_prompt_of_ones_own_replaces_the_built_in_one(library):
    assert task(system_prompt="p").problem("reasoning-gym/powers/1").system == "p"
    assert task(tags=False).problem("reasoning-gym/powers/1").system == ""


@pytest.mark.parametrize(
    "options, message",
    [
        ({"dataset": "power"}, "is 'power', which reasoning-gym has not; did you mean 'powers'?"),
        ({"dataset": "zzz"}, "which reasoning-gym has not; there is countdown, powers"),
        ({"parameters": {"bas": 3}}, "has no parameter 'bas'; it has base, modulus"),
        ({"parameters": {"seed": 3}}, "has no parameter 'seed'; it has base"),
        ({"other_parameters": {"bas": 3}}, "has no parameter 'bas'"),
        ({"parameters": {"base": -1}}, r"cannot make powers with .* \(AssertionError: base must"),
        ({"parameters": {"base": "x"}}, r"cannot make powers with {'base': 'x'} \(TypeError: "),
        ({"size": 199_996}, "200001 problems are too many; at most 200000"),
    ],
)
def test_a_mistake_is_told_in_one_line(library, options, message):
    with pytest.raises(TaskError, match=message) as caught:
        task(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dataset", REFUSED)
def test_kinds_whose_verifier_runs_what_it_reads_are_refused(library, dataset):
    with pytest.raises(TaskError, match=f"is '{dataset}', but it.*; choose another"):
        task(dataset)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(TaskError, match=r"pip install 'potluck\[gym\]'"):
        task()


# The real library.


@pytest.fixture(scope="module")
def real():
    """reasoning-gym itself, where it is installed: it is large and wants a C compiler."""
    return pytest.importorskip("reasoning_gym", reason="the extra 'gym' is not installed")


def test_the_real_library_makes_and_grades_its_problems(real):
    made = task("chain_sum", parameters={"max_terms": 3}, other_parameters={"min_terms": 4})
    assert [len(made.ids(split)) for split in get_args(Split)] == [20, 5, 5]
    assert made.digest == task(
        "chain_sum", parameters={"max_terms": 3}, other_parameters={"min_terms": 4}
    ).digest  # fmt: skip
    for split in get_args(Split):
        for id in made.ids(split):
            answer = made.problem(id).answer
            assert scored(made, tagged(answer), tagged(f"{answer}1"), id=id)[0] == 1
            assert scored(made, tagged(f"{answer}1"), id=id)[0] < 1


@pytest.mark.parametrize("dataset", ONLY)
def test_what_is_let_through_holds_every_real_answer(real, dataset):
    made = task(dataset, tags=False, size=6, held_out=2)
    for id in made.ids("train"):
        assert scored(made, made.problem(id).answer, id=id) == [1.0]


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
        assert scored(made, text)[0] < 0.1, text
    assert time.process_time() - began < 5
    assert "run" not in capfd.readouterr().out
