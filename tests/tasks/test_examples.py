"""Worked examples before a question: from a file, and as turns of messages in the data."""

import json
from typing import get_args

import pytest

from potluck.builder.task import make_task, notes_on
from potluck.config import from_tree
from potluck.tasks import Split, TaskError
from potluck.tasks.base import WithOutOfDistribution, overlaps
from potluck.tasks.benchmarks import BOX_PROMPT, GSM8K_PROMPT, Gsm8kOptions, Math500Options
from potluck.tasks.table import HubOptions, JsonlOptions
from tasks.graded import graded, tagged

SHOTS = [
    {"question": f"How much is {i} and {i}?", "answer": f"It is <<{i}+{i}>>.\n#### {2 * i}"}
    for i in range(1_001, 1_007)
]
TEXT = (
    "Question: How much is 1001 and 1001?\nAnswer: It is <<1001+1001>>.\n#### 2002\n\n"
    "Question: How much is 1002 and 1002?\nAnswer: It is <<1002+1002>>.\n#### 2004"
)


@pytest.fixture
def write(tmp_path):
    """A function that writes rows as JSON lines into a file of this name."""

    def write(name, *rows):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / name)

    return write


@pytest.fixture
def made(write):
    """A function that makes a task of rows, with examples before its questions."""

    def made(*rows, examples=SHOTS, **rules):
        chosen = {"held_out": 0, "tags": False, "shots": 2, "answer_after": "####"} | rules
        place = write("shots.jsonl", *examples)
        return JsonlOptions(path=write("rows.jsonl", *rows), examples=place, **chosen).make()

    return made


def asked(task, at=0):
    problem = task.problem(task.ids("train")[at])
    return problem.system, problem.question


ROW = {"question": "How much is 3 and 4?", "answer": "#### 7"}


def test_the_first_examples_stand_before_each_question_in_one_form(made):
    task = made(ROW, ROW | {"question": "How much is 5 and 2?"}, last_answer="number")
    question = "Question: How much is 3 and 4?\nAnswer:"
    assert asked(task) == (TEXT, question)
    assert asked(task, 1) == (TEXT, question.replace("3 and 4", "5 and 2"))
    assert graded(task, " 3 and 4 is 7.\n#### 7", " 8") == [1, 0]
    assert task.notes == ()


def test_the_count_the_file_and_the_system_prompt_change_what_is_asked_and_the_digest(made):
    plain = made(ROW)
    others = [
        made(ROW, shots=3), made(ROW, examples=SHOTS[1:]), made(ROW, system_prompt="Be brief."),
        made(ROW, worked="other", examples=[it | {"other": "#### 1"} for it in SHOTS]),
    ]  # fmt: skip
    assert len({plain.digest, *(task.digest for task in others)}) == 5
    assert asked(others[0])[0].count("Question: ") == 3
    assert asked(others[1])[0].startswith("Question: How much is 1002")
    assert asked(others[2])[0] == f"Be brief.\n\n{TEXT}"
    assert asked(others[3])[0].endswith("1002?\nAnswer: #### 1")
    assert made(ROW, examples=[*SHOTS, ROW]).digest == plain.digest  # what is not shown


def test_a_problem_is_never_an_example_of_itself(made):
    task = made(ROW, SHOTS[0], SHOTS[1])
    assert asked(task)[0] == TEXT
    for at in (1, 2):
        system, question = asked(task, at)
        assert question.partition("\n")[0] not in system
        assert system.count("Question: ") == 2
        assert "1003" in system
    few = made(SHOTS[0] | {"question": "how MUCH is 1001  and 1001?"}, examples=SHOTS[:2])
    assert asked(few)[0].count("Question: ") == 1


def test_what_is_held_out_is_no_example_and_that_is_told(made, write):
    held = write("held.jsonl", SHOTS[0])
    other = write("other.jsonl", SHOTS[2])
    task = made(ROW, validation=held, out_of_distribution=other, last_answer="number")
    for split in get_args(Split):
        system = task.problem(task.ids(split)[0]).system
        assert [str(n) in system for n in range(1001, 1005)] == [False, True, False, True]
    (note,) = task.notes
    assert note.startswith("examples: 2 rows are problems that are held out, and are not shown, fi")
    assert note.endswith("shots.jsonl, line 1")
    # Of the rows themselves, those that validate.
    itself = made(*SHOTS, examples=SHOTS, held_out=2)
    shown = asked(itself)[0]
    assert not any(itself.problem(id).question[:35] in shown for id in itself.ids("validation"))


@pytest.mark.parametrize("rules, row, answer", [
    ({"tags": True}, {}, "<think>It is <<1001+1001>>.</think><answer>2002</answer>"),
    ({"tags": True, "answer_after": ""}, {"answer": 5}, "<think></think><answer>5</answer>"),
    ({"tags": True, "answer_after": "", "worked": "how"}, {"answer": 5, "how": "2+3"},
     "<think>2+3</think><answer>5</answer>"),
    ({"tags": True, "answer_after": "", "worked": "how"}, {"answer": 5, "how": tagged("5")},
     tagged("5")),
    ({"answer_after": ""}, {"answer": 5}, "5"),
    ({"answer": "", "worked": "how"}, {"how": "Hm"}, "Hm"),
    ({"worked": "how", "last_answer": "box"}, {"how": r"So \boxed{2002}", "answer": "#### 2002"},
     r"So \boxed{2002}"),
])  # fmt: skip
def test_an_answer_is_written_as_the_task_asks_for_it(made, rules, row, answer):
    examples = [SHOTS[0] | row, SHOTS[1] | row]
    task = made(ROW | ({"answer": 7} if rules.get("answer_after") == "" else {}),
                examples=examples, **rules)  # fmt: skip
    assert f"How much is 1001 and 1001?\nAnswer: {answer}\n\n" in asked(task)[0]
    assert [note for note in task.notes if "examples" in note] == []


def test_options_are_shown_and_the_answer_is_a_letter(made):
    rows = [{"question": f"{i}+1?", "options": ["x", str(i + 1)], "answer": 1} for i in range(5)]
    rules = {"grading": "choice", "options": "options", "answer_after": ""}
    task = made(*rows[:2], examples=rows[2:], answer_as="index", **rules)
    shown = "Question: 2+1?\nA. x\nB. 3\nAnswer: B\n\nQuestion: 3+1?\nA. x\nB. 4\nAnswer: B"
    assert asked(task) == (shown, "Question: 0+1?\nA. x\nB. 1\nAnswer:")
    assert graded(task, " B", " A", " 1") == [1, 0, 1]
    assert task.notes == ()


def test_examples_that_would_earn_nothing_are_told(made):
    task = made(ROW)  # the whole completion is to be the number
    (note,) = [note for note in task.notes if "examples" in note]
    assert "the answers of 2 would earn nothing as completions, first" in note
    assert note.endswith("shots.jsonl, line 1; they teach a form that is not graded")


@pytest.mark.parametrize("rules, said", [
    ({"shots": 7}, "with 6 examples that are not held out, but task.shots is 7; give more, or l"),
    ({"examples": [ROW | {"answer": "7"}]}, r"shots.jsonl, line 1 has an 'answer' without '####'"),
    ({"worked": "how"}, r"shots.jsonl, line 1 has no column 'how'; it has question, answer"),
    ({"answer": ""}, r"task.examples have no answers; name their column in task.worked"),
    ({"game": "FILE.py:Game"}, r"are answers of one turn, but task.game answers in several"),
])  # fmt: skip
def test_examples_that_cannot_be_shown_are_refused_with_the_way_out(made, rules, said, monkeypatch):
    monkeypatch.setattr(JsonlOptions, "play", lambda options: None)
    with pytest.raises(TaskError, match=said):
        made(ROW, **rules)


def test_a_column_or_a_file_of_no_examples_is_refused(write):
    path = write("rows.jsonl", ROW)
    with pytest.raises(TaskError, match=r"worked is 'how', a column of task.examples, which is e"):
        JsonlOptions(path=path, worked="how").make()
    with pytest.raises(TaskError, match=r"cannot read .*none.jsonl .* in task.examples"):
        JsonlOptions(path=path, answer_after="####", held_out=0, examples="none.jsonl").make()


def test_the_hub_has_examples_in_a_split_or_a_file(monkeypatch, write):
    """MMLU's "dev" has five of each subject."""
    from potluck.tasks import sources

    def rows(name, subset, split, **more):
        return [(f"{split}, row 0", ROW if split == "train" else SHOTS[0])]

    monkeypatch.setattr(sources, "hub_rows", rows)
    rules = {"answer_after": "####", "tags": False, "held_out": 0}
    task = HubOptions(dataset="a/b", examples="dev", shots=1, **rules).make()
    assert asked(task)[0] == TEXT.partition("\n\n")[0]
    file = write("shots.jsonl", SHOTS[1])
    task = HubOptions(dataset="a/b", examples=file, shots=1, **rules).make()
    assert asked(task)[0] == TEXT.partition("\n\n")[2]


def test_gsm8k_has_examples_of_its_file_and_none_that_it_holds_out(made_up_path):
    path = f"{made_up_path}/train.jsonl"
    plain = Gsm8kOptions(path=made_up_path, tags=False).make()
    task = Gsm8kOptions(path=made_up_path, tags=False, examples=path, shots=3).make()
    held = {plain.problem(id).question for id in plain.ids("validation")}
    for split in ("train", "validation"):
        assert task.ids(split) == plain.ids(split)
    for id in (*task.ids("train"), *task.ids("validation")[:9], "gsm8k/test/3"):
        problem, bare = task.problem(id), plain.problem(id).question
        assert problem.question == f"Question: {bare}\nAnswer:"
        shown = [part[10:].partition("\n")[0] for part in problem.system.split("\n\n")]
        assert len(shown) == 3
        assert not held & {*shown}
        assert bare not in shown
    id = task.ids("train")[0]
    assert graded(task, "#### " + task.problem(id).answer, "#### 0", id=id) == [1, 0]
    tags = Gsm8kOptions(path=made_up_path, examples=path).make()
    system = tags.problem("gsm8k/test/3").system
    assert system.startswith(f"{GSM8K_PROMPT}\n\nQuestion: ")
    assert system.count("Answer: <think>It is ...</think><answer>") == 4
    assert len({plain.digest, task.digest, tags.digest}) == 3


def test_math500_shows_solutions(write, tmp_path):
    rows = [{"problem": f"What is {i}?", "answer": str(i), "solution": rf"It is \boxed{{{i}}}."}
            for i in range(6)]  # fmt: skip
    write("test.jsonl", *rows[:3])
    shots = write("shots.jsonl", *rows[2:])
    task = Math500Options(path=str(tmp_path), tags=False, examples=shots, shots=2).make()
    problem = task.problem("math500/0")
    assert problem.system == (
        "Question: What is 3?\nAnswer: It is \\boxed{3}.\n\n"
        "Question: What is 4?\nAnswer: It is \\boxed{4}."
    )
    assert problem.question == "Question: What is 0?\nAnswer:"
    assert BOX_PROMPT not in problem.system
    assert any("1 rows are problems that are held out" in note for note in task.notes)


def messages(*roles):
    return [{"role": role, "content": f"{role} {at}"} for at, role in enumerate(roles)]


@pytest.mark.parametrize("roles, system, question", [
    (("user", "assistant", "user"), "Question: user 0\nAnswer: assistant 1", "user 2"),
    (("system", "user", "assistant", "user", "assistant", "user"),
     "system 0\n\nQuestion: user 1\nAnswer: assistant 2\n\nQuestion: user 3\nAnswer: assistant 4",
     "user 5"),
])  # fmt: skip
def test_turns_in_the_data_are_examples_too(write, roles, system, question):
    path = write("rows.jsonl", {"question": messages(*roles), "answer": 7})
    task = JsonlOptions(path=path, held_out=0, tags=False).make()
    assert asked(task) == (system, f"Question: {question}\nAnswer:")
    brief = JsonlOptions(path=path, held_out=0, tags=False, system_prompt="Be brief.").make()
    shown = system.removeprefix("system 0\n\n")
    assert asked(brief)[0] == f"Be brief.\n\n{shown}"
    shots = write("shots.jsonl", {"question": "q", "answer": 1})
    with pytest.raises(TaskError, match=r"examples of its own in 'question'; drop them, or task"):
        JsonlOptions(path=path, held_out=0, tags=False, examples=shots, shots=1).make()


@pytest.mark.parametrize("roles", [
    ("user", "assistant"), ("system",), ("assistant", "user"), ("user", "user"),
    ("system", "system"), ("user", "system", "user"), ("system", "assistant"),
    ("user", "assistant", "assistant", "user"),
    ("user", "tool", "user"), (),
])  # fmt: skip
def test_turns_in_another_order_are_refused(write, roles):
    path = write("rows.jsonl", {"question": messages(*roles), "answer": 7})
    with pytest.raises(TaskError, match=r"line 1 has messages of .*; expected 'user' and 'as"):
        JsonlOptions(path=path, held_out=0).make()


def test_a_question_of_another_task_that_is_an_example_is_told(made, write):
    task = made(ROW)
    rows = write("elsewhere.jsonl", SHOTS[0], SHOTS[5])
    rules = {"answer_after": "####", "held_out": 0, "tags": False}
    other = JsonlOptions(out_of_distribution=rows, **rules).make()
    told = list(overlaps(WithOutOfDistribution(task, other)))
    assert told == [
        "overlap: 1 of 2 out-of-distribution problems stand in the text before the questions, "
        "first jsonl/out-of-distribution/0"
    ]
    assert list(overlaps(task)) == []


def test_a_recipe_names_them(write):
    task = {
        "name": "jsonl",
        "path": write("rows.jsonl", *[ROW] * 3),
        "answer_after": "####",
        "tags": False,
        "held_out": 0,
        "examples": write("shots.jsonl", *SHOTS),
        "shots": 2,
    }
    node = {"a": {"model": "builtin:digits-small"}}
    config = from_tree({"name": "r", "task": task, "node": node})
    made = make_task(config)
    assert asked(made)[0] == TEXT
    assert any("would earn nothing as completions" in note for note in notes_on(config, made))
