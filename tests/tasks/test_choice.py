r"""Multiple choice: options as data have them, the right one among them, the one a text names."""

import json
import time
from dataclasses import replace
from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nouns import completion
from potluck.builder.task import make_task, notes_on
from potluck.config import from_tree
from potluck.tasks import TaskError
from potluck.tasks.base import Shortened, WithOutOfDistribution, guess
from potluck.tasks.choice import LONGEST_ANSWER, named_in_answer, named_in_text, options_of
from potluck.tasks.faults import commonest_answer, fault_of
from potluck.tasks.grading import PLAIN_PROMPTS
from potluck.tasks.table import HubOptions, JsonlOptions
from tasks.graded import graded, tagged

SUM = options_of({"o": ["3", "4", "penicillin", "None of the above"]}, "o", "here")
HARD = options_of(
    {"o": {"D": "Both A and B", "A": "A ball falls", "B": "Vitamin C", "C": "E. coli"}}, "o", "here"
)
"""Options whose texts hold letters."""
MARKED = options_of({"o": ["$5", "5", "a**b", "ab", "$"]}, "o", "here")
"""Options that differ in marks."""
LETTERS = options_of({"o": {"A": "B", "B": "A", "C": "AB", "D": "O"}}, "o", "here")
FRACTIONS = options_of({"o": [r"$\frac{1}{2}$", "$2$", "3.", "x"]}, "o", "here")

RIGHT = (  # of SUM, between tags or without
    "B", "(B)", "[B]", "B.", "B)", "B:", "b", "(b)", "b)", "B!", "'B'", "`B`", " B\n", "**B**",
    "**B.** 4", "**B. 4**", "__B__", r"\boxed{B}", r"\boxed{(B)}", r"\boxed{B. 4}", r"\text{B}",
    r"\text{(B)}", r"\boxed{\text{B}}", r"$\boxed{\textbf{(B)}}$", r"\(\boxed{B}\)",
    r"\textbf{(B)}\ 4", r"\mathrm{B}", "B) 4", "B. 4", "(B) 4", "[B] 4", "B: 4", "B, 4", "B - 4",
    "B \u2013 4", "B. 4.", "b) 4", "B\n4", "B\n\nTwo and two make it.", "B. Two and two make it.",
    "B (4)", "The answer is B because two and two make it.",
    "B, as two and two make it", "(B), I think", "B. A sum of two", "4", "4.", "**4**", "$4$",
    r"\boxed{4}", "\u201c4\u201d", "The answer is B", "The answer is (B).", "the answer is b",
    "Answer: B", "answer: **B**", "**Answer:** B", "Answer: B. 4", "The answer is 4", "Answer: 4",
    "Final answer: The answer is B", "The correct answer is: **B. 4**", "So, the answer must be B.",
    "The correct option is B) 4", "The best choice would be (B)", "The answer is option B",
    "Therefore, the answer is most likely choice (B).", "The answer to this question is: B. 4",
    "I choose B", "I think the answer is B", "My choice: B", "Answer:\n\nB", "Option B",
    "option (B)", "the answer B", "Option B is correct.", "B is the correct answer",
    "So (B) is right",
)  # fmt: skip
NONE = (  # of SUM, neither between tags nor without
    "", " ", "E", "(E)", "E. 5", "5", "two", "I do not know", "B or C", "B and C", "B, C", "B/C",
    "B C", "BC", "BB", "(B)(C)", "(B) (C)", "B) C)", "b, c", "b or c", "A, B, C, D", "B or 3",
    "A. because not B", "A because not B", "The answer is A since B is odd", "B (3)", "A ball",
    "A, not B", "A, but maybe B", "A. 3, or B. 4", "A) 3 or B) 4", "B. 3",
    "B. penicillin", "(B) 3 or 4", "B. 4, or penicillin", "3 or 4", "3, 4", "3\n4", "not B",
    "Not B.", "The answer is not B", "The answer is B or C", "The answer is (B) or (C)",
    "The answer is either B or C", "The answer is B or the answer is C", "B or the answer is C",
    "The answer is A. The answer is B.", "Answer: B, C", "Answer: A/B", "Answer: all of them",
    "Either A or B", "between A and B", "all of them", "B?", "(B", "[B)", "(B(", "B-", "B4", "B.4",
    "B\nA", "B\nC", r"\boxed{B, C}", r"\boxed{B} or \boxed{C}", r"\boxed{B}\boxed{C}", r"\boxed{}",
    r"\boxed{E}", r"\text{B or C}", "A. 3\nB. 4\nC. penicillin\nD. None of the above", "Option E",
    "A is correct, B is correct", "B is wrong", "Both", "\u0392", "\uff22", "\0", "\ud800",
)  # fmt: skip
IN_LONG_TEXTS = (
    ("We add.\n\nB", "B"), ("2+2 is 4.\n\nThe answer is B.", "B"), ("We add.\n(B) 4", "B"),
    ("We add.\n**B. 4**", "B"), ("We add.\n4", "B"), ("B. 4\n\nExplanation: it is the sum.", "B"),
    ("Answer: B\n\nA is wrong, C too.", "B"), ("The answer is A.\nNo.\nThe answer is B.", "B"),
    ("Consider each option:\n\nA. 3 is no sum.\nB. 4 is.\n\nThe answer is B.", "B"),
    ("A. 3\nB. 4\nC. penicillin\nD. None of the above\n\nB", "B"),
    ("Which answer is correct? We add.\nB", "B"), ("Since A is too small, the answer is B.", "B"),
    ("We add, and the answer is B", "B"),
    (r"A: \boxed{A}? No." "\n" r"\boxed{B} it is, not C.", "B"),
    (r"As 2+2 = \boxed{4}, that is it.", "B"), ("x" * 50_000 + "\nThe answer is B", "B"),
    ("A. 3 is no sum.\nB. 4 is one.", None), ("The answer is B because A is odd.", None),
    ("We add.\nIt may be B.", None), ("The answer is B.\n" + "x" * 50_000, None),
    ("2 and 2 is 4.", "B"), ("We add.\nThe right drug is penicillin.", "C"), ("2+2: 4", "B"),
    ("2+2 = 4", "B"), ("It is not 4.", None), ("4 is the sum.", None), ("2+2 is 3 or 4.", None),
    ("Not penicillin: it is 4.", None), ("It is 4, penicillin", None), ("Not A: it is 4.", None),
    ("We add, and that makes 4 in all.", None), ("The answer is \\boxed{5}, so B.", None),
)  # fmt: skip
OWN_TEXTS = (
    (HARD, "A ball falls", "A"), (HARD, "Both A and B", "D"), (HARD, "D. Both A and B", "D"),
    (HARD, "D, both A and B", "D"), (HARD, "D. Both A and B are right", "D"),
    (HARD, "E. coli", "C"),
    (HARD, "C) E. coli", "C"), (HARD, "B. Vitamin C", "B"), (HARD, "B. vitamin c is it", "B"),
    (HARD, "C", "C"), (HARD, "A. A ball falls down", "A"), (HARD, "vitamin C", "B"),
    (MARKED, "$5", "A"), (MARKED, "5", "B"), (MARKED, "a**b", "C"), (MARKED, "ab", "D"),
    (MARKED, "$", "E"), (MARKED, r"\$5", None), (MARKED, "A. $5", "A"), (MARKED, "E. $", "E"),
    (MARKED, "A, it is", "A"),
    (HARD, "both", None), (HARD, "A and B", None), (LETTERS, "B", "B"), (LETTERS, "A", "A"),
    (LETTERS, "A. B", "A"), (LETTERS, "(B) A", "B"), (LETTERS, "AB", "C"), (LETTERS, "B. B", None),
    (LETTERS, "o", "D"), (FRACTIONS, r"\frac{1}{2}", "A"), (FRACTIONS, r"\text{ x }", "D"),
    (FRACTIONS, r"$\boxed{\frac{1}{2}}$", "A"),
    (FRACTIONS, "2", "B"), (FRACTIONS, "3", "C"), (FRACTIONS, "X", "D"), (FRACTIONS, "0.5", None),
)  # fmt: skip


@pytest.mark.parametrize("find", [named_in_answer, named_in_text])
def test_an_option_is_named_by_its_letter_or_text_and_two_are_none(find):
    assert [text for text in RIGHT if find(text, SUM) != "B"] == []
    assert [text for text in NONE if find(text, SUM) is not None] == []


def test_the_answer_of_a_long_text_is_its_box_its_sentence_its_last_line_or_its_first():
    wrong = [text for text, letter in IN_LONG_TEXTS if named_in_text(text, SUM) != letter]
    assert wrong == []
    assert named_in_answer("We add.\n\nB", SUM) is None  # between tags stands the answer alone
    assert named_in_answer("B. " + "x" * LONGEST_ANSWER, SUM) is None


def test_a_text_of_an_option_that_holds_letters_is_that_option():
    wrong = [case for case in OWN_TEXTS if named_in_answer(case[1], case[0]) != case[2]]
    assert wrong == []


@given(st.text() | st.text("AB().,\n *$\\{}boxedtransi34"))
def test_no_text_raises_and_only_an_option_is_named(text):
    for find in (named_in_answer, named_in_text):
        assert find(text, SUM) in (None, "A", "B", "C", "D")


@pytest.mark.parametrize("unit", [
    "answer ", "the answer to ", "answer is ", "The answer is B\n", "B. ", "B\n", "\\boxed{", "{",
    "**", "A ", "A or ", "$", "(B", "\n", " ", "x", "3\n", "option is correct ",
])  # fmt: skip
def test_the_longest_hostile_text_takes_no_time(unit):
    text = unit * (1_000_000 // len(unit))
    start_s = time.process_time()
    named_in_text(text, SUM)
    named_in_answer(text[:LONGEST_ANSWER], SUM)
    assert time.process_time() - start_s < 1


@pytest.fixture
def made(tmp_path):
    """A function that makes a task of rows, with options of the recipe."""

    def made(*rows, kind="jsonl", **rules):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        chosen = {"path": str(path), "held_out": 0, "grading": "choice", "options": "options"}
        return JsonlOptions(**chosen | rules).make()

    return made


def row(options, answer, **more):
    return {"question": "2+2?", "options": options, "answer": answer} | more


def first(task):
    return task.problem(task.ids("train")[0])


ASKED = "2+2?\nA. 3\nB. 4\nC. 5"
FORMS = [
    (row(["3", "4", "5"], "B"), {}), (row([3, 4, 5], "B"), {}), (row(["3", "4", "5"], 1), {}),
    (row(["A) 3", "B) 4", "C) 5"], "B"), {}), (row(["(A)3", "(B)4", "(C)5"], "(B)"), {}),
    (row({"A": "3", "B": "4", "C": "5"}, "B"), {}), (row({"a": "3", "b": "4", "c": "5"}, "B"), {}),
    (row({"C": "5", "B": "4", "A": "3"}, "b"), {}), (row({"A": "3", "B": "4", "C": "5"}, 1), {}),
    (row({"A": "3", "B": "4", "C": "5", "D": None}, "B"), {}),
    (row({"0": "3", "1": "4", "2": "5"}, 1), {}), (row({"1": "3", "2": "4", "3": "5"}, "2"), {}),
    (row({"text": ["3", "4", "5"], "label": ["A", "B", "C"]}, "B"), {}),
    (row({"text": ["3", "4", "5"], "label": ["1", "2", "3"]}, "2"), {}),
    (row([{"text": "3", "label": "A"}, {"text": "4", "label": "B"}, {"text": "5", "label": "C"}],
         "B"), {}),
    (row([{"key": "A", "value": "3"}, {"key": "B", "value": "4"}, {"key": "C", "value": "5"}], "4"),
     {}),
    (row(["3", "4", "5"], "B. 4"), {}), (row(["3", "4", "5"], "4"), {}),
    (row(["3", "4", "5"], "so #### B"), {"answer_after": "####"}),
    (row(["3", "4", "5"], 2), {"answer_as": "index-from-1"}),
    (row(["3", "4", "5"], "1"), {"answer_as": "index"}),
    ({"question": "2+2?", "opa": "3", "opb": "4", "opc": 5, "answer": 1},
     {"options": ("opa", "opb", "opc")}),
    ({"question": "2+2?", "A": "3", "B": "4", "C": "5", "D": "", "answer": "B"},
     {"options": ("A", "B", "C", "D")}),
    ({"question": [{"role": "user", "content": "2+2?"}], "options": ["3", "4", "5"], "answer": 1},
     {}),
]  # fmt: skip


@pytest.mark.parametrize("data, rules", FORMS)
def test_each_form_of_options_and_of_the_answer_makes_the_same_problem(made, data, rules):
    problem = first(made(data, **rules))
    assert (problem.question, problem.answer) == (ASKED, "B")


@pytest.mark.parametrize("options, answer, rules, letter", [
    ({"A": "A", "B": "B", "C": "AB"}, "B", {}, "B"),  # both readings are one
    ({"A": "B", "B": "A"}, "B", {"answer_as": "label"}, "B"),
    ({"A": "B", "B": "A"}, "B", {"answer_as": "text"}, "A"),
    (["1", "2", "3", "4"], 2, {"answer_as": "index"}, "C"),
    (["1", "2", "3", "4"], 2, {"answer_as": "text"}, "B"),
    (["1", "2", "3", "4"], 2, {"answer_as": "index-from-1"}, "B"),
    (["1", "2", "3", "4"], 4, {}, "D"), (["Aa", "AA", "aa"], "AA", {}, "B"),
    (["0", "1", "2"], "1", {}, "B"), ({"A": "x", "C": "y", "D": "z"}, "C", {}, "C"),
    (["x.", "y."], "Y", {}, "B"),
    ([f"n{i}" for i in range(26)], "Z", {}, "Z"),
])  # fmt: skip
def test_the_right_option_is_the_one_that_the_data_mean(made, options, answer, rules, letter):
    assert first(made(row(options, answer), **rules)).answer == letter


BAD = [
    (row(["3"], "A"), "has one option as 'options'; expected 2 to 26"),
    (row([], "A"), "has 0 options as 'options'; expected 2 to 26"),
    (row([str(i) for i in range(27)], "A"), "has 27 options as 'options'; expected 2 to 26"),
    (row(["3", "4", " 3"], "B"), "has the options A and C of 'options' alike, '3'; expected diff"),
    (row({"A": "3", "a": "4"}, "B"), r"has \['A', 'a'\] as labels of 'options'; expected diff"),
    (row(["3", " "], "A"), "has an empty 'options'; expected a text for each option"),
    (row(["3", "\x1b[2J"], "A"), r"has '\\x1b' at 0 of 'options'; use printable"),
    (row(["3", ["4"]], "A"), r"has \['4'\] among the options of 'options'; expected texts or num"),
    (row(["3", True], "A"), "has True among the options"),
    (row("3, 4", "A"), "has '3, 4' as 'options'; expected a list of options or a mapping of let"),
    (row({"text": ["3"], "label": ["A", "B"]}, "A"), "has 1 texts and 2 labels as 'options'; "),
    (row(["3", "4"], "C"), "has 'C' as 'answer'; expected one of A, B, or a number of 0 to 1, or"),
    (row(["3", "4"], 2), ".* a number of 0 to 1, .*; if the first option is 1, set .*-1'"),
    (row(["3", "4"], "9" * 9_999), "has '9999.* as 'answer'; expected one of A, B"),
    (row(["3", "4"], "5"), "has '5' as 'answer'; expected one of A, B"),
    (row({"1": "3", "2": "4"}, 0), "has '0' as 'answer'; expected one of 1, 2, or the text"),
    (row(["3", "4"], "A or B"), "has 'A or B' as 'answer'; expected one of A, B"),
    (row(["3", "4"], True), "has True as 'answer'; expected a text or a number"),
    (row({"A": "B", "B": "A"}, "B"),
     "has 'B' as 'answer', which is the label of B and the text of A; set task.answer_as = 'label' "
     "or 'text'"),
    (row(["1", "2", "3"], 1), "has '1' .*, which is the index of B and the text of A; set .* 'in"),
    ({"question": "2+2?", "answer": "B"}, "has no column 'options' with options; it has question,"),
]  # fmt: skip


@pytest.mark.parametrize("data, said", BAD)
def test_a_bad_row_is_one_line_with_its_place_and_the_way_out(made, data, said):
    good = row(["3", "4"], "B")
    with pytest.raises(TaskError, match=rf"rows.jsonl, line 2 {said}") as caught:
        made(good, data)
    assert str(caught.value).isprintable()
    assert "1 of 2 rows are no problems: task.skip_bad = true leaves them out" in str(caught.value)
    assert len(made(good, data, skip_bad=True).ids("train")) == 1


@pytest.mark.parametrize("rules, said", [
    ({"options": ""}, r"task.options is empty; name the column"),
    ({"grading": "exact"}, r"task.options is 'options', but grading 'exact' has no options"),
    ({"grading": "exact", "options": "", "answer_as": "text"}, r"task.answer_as is 'text', but"),
    ({"tags": False, "last_answer": "box"}, r"last_answer is 'box', but grading 'choice' finds"),
    ({"answer_as": "index"}, r"has 'B' as 'answer'; expected a number of 0 to 1, as task.answer"),
])  # fmt: skip
def test_keys_that_contradict_each_other_or_the_data_are_refused(made, rules, said):
    with pytest.raises(TaskError, match=said):
        made(row(["3", "4"], "B"), **rules)


def test_a_completion_is_graded_by_the_options_of_its_own_problem(made):
    rows = row(["3", "4"], "B"), row(["4", "3"], "A", question="4?"), row(["x", "y"], 1)
    for tags, form in ((True, tagged), (False, str)):
        task = made(*rows, tags=tags)
        ids = task.ids("train")
        right = [form(text) for text in ("B", "(B)", "B. 4", "4", "The answer is B")]
        wrong = [form(text) for text in ("A", "3", "A or B", "B. 3", "x", "y", "")]
        assert graded(task, *right, *wrong, id=ids[0]) == [1] * 5 + [0] * 7, tags
        assert graded(task, form("4"), form("B"), form("A"), id=ids[1]) == [1, 0, 1]
        assert graded(task, form("4"), form("y"), id=ids[2]) == [0, 1]
        assert graded(task, form("B"), id=ids[0], end="length") == [0]
    assert graded(made(*rows), "B") == [0]


def test_the_prompt_asks_for_a_letter_and_the_digest_has_options_and_keys(made):
    data = row(["3", "4"], "B", more=["3", "4"]), row(["5", "6"], 1, more=["5", "6"])
    plain = made(*data)
    assert "the letter of the right option alone" in first(plain).system
    assert first(made(*data, tags=False)).system == PLAIN_PROMPTS["choice"]
    others = [made(*data, tags=False), made(*data, options="more"), made(data[0])]
    for options, answer in ((["5", "7"], 1), (["6", "5"], 1), (["5", "6"], 0)):
        others.append(made(data[0], row(options, answer)))
    only = row(["3", "4"], 1)
    others += [made(only), made(only, answer_as="index")]
    assert len({plain.digest, *(task.digest for task in others)}) == len(others) + 1


def test_options_without_answers_are_asked_and_left_to_a_reward(made):
    task = made({"question": "2+2?", "options": ["3", "4"]}, answer="")
    assert (first(task).question, first(task).answer) == ("2+2?\nA. 3\nB. 4", "")


def test_the_hub_gives_the_same_problems_and_labels_by_name(monkeypatch):
    """MMLU has class labels as answers; ARC a struct of two lists."""
    from potluck.tasks import sources

    rows = [row(["3", "4", "5"], sources.Label("B")), FORMS[12][0]]
    monkeypatch.setattr(
        sources, "hub_rows", lambda *args, **more: [(f"row {i}", it) for i, it in enumerate(rows)]
    )
    task = HubOptions(dataset="a/b", grading="choice", options="options", held_out=0).make()
    asked = [(task.problem(id).question, task.problem(id).answer) for id in task.ids("train")]
    assert asked == [(ASKED, "B")] * 2


def test_answers_that_may_count_from_1_are_told(made):
    def notes(answers, **rules):
        rows = [row(["x", "y", "z"], a, question=f"{i}?") for i, a in enumerate(answers)]
        return [note for note in made(*rows, **rules).notes if "index" in note]

    (note,) = notes([1, 2] * 10)
    assert "20 answers are read as the index of an option, from 0, and none is 0" in note
    for answers, rules in (
        ([0, 1] * 10, {}), ([1, 2] * 9, {}), (["B", "C"] * 10, {}),
        ([1, 2] * 10, {"answer_as": "index"}), ([1, 2] * 10, {"answer_as": "index-from-1"}),
    ):  # fmt: skip
        assert notes(answers, **rules) == []


@pytest.mark.parametrize("tags, text, kind", [
    (True, "B", "form"), (True, tagged("A"), "wrong"), (True, tagged("3"), "wrong"),
    (True, tagged("A or B"), "form"), (True, tagged("none"), "form"), (False, "A", "wrong"),
    (False, "It is unclear.", "form"), (False, "3", "wrong"), (False, "A or B", "form"),
    (False, "", "empty"),
])  # fmt: skip
def test_an_answer_that_names_no_option_has_the_wrong_form(made, tags, text, kind):
    task = made(row(["3", "4"], "B"), tags=tags)
    problem = first(task)
    assert fault_of(task, problem, completion(problem=problem.id), text).kind == kind


def test_a_constant_is_told_beside_what_a_guess_earns(made, tmp_path):
    rows = [
        row(["w", "x", "y", "z"][: 4 - i % 2 * 2], "AABA"[i % 4], question=f"{i}?")
        for i in range(40)
    ]
    task = made(*rows, tags=False)
    problems = [task.problem(id) for id in task.ids("train")]
    assert guess(task, problems) == pytest.approx((1 / 4 + 1 / 2) / 2)
    # A text and a letter are one answer.
    told = commonest_answer(task, problems[:4], ["A", "w", "The answer is (A)", "z"])
    assert told == ("A", 0.75, 0.75)
    tree = {
        "name": "r",
        "task": {"name": "jsonl", "path": str(tmp_path / "rows.jsonl"), "grading": "choice",
                 "options": "options", "held_out": 0},
        "node": {"a": {"model": "builtin:digits-small"}},
    }  # fmt: skip
    config = from_tree(tree)
    (line,) = [each for each in notes_on(config, make_task(config)) if each.startswith("constant")]
    assert line.startswith(
        "constant: 'A', given to every train problem, earns 0.75 (a guess among the options 0.38); "
    )


def test_tasks_around_it_know_its_options(made):
    asked = [row(["3", "4"], "B", question=f"{i}?") for i in range(3)]
    choice = made(*asked, tags=False)
    others = WithOutOfDistribution(choice, _Elsewhere(choice))
    short = Shortened(choice, lambda problem: problem.id != choice.ids("train")[0], "the limit")
    for task in (others, short):
        problem = first(task)
        assert task.guess(problem) == 0.5
        assert task.answer_of(problem, "4") == "B"
        assert task.lacking(problem, "neither") != ""
    problem = others.problem("there/0")
    assert (others.guess(problem), others.answer_of(problem, "4")) == (None, "")
    assert others.lacking(problem, "neither") == ""


class _Elsewhere:
    """A task of another kind, which knows neither forms nor options."""

    digest, notes = "d", ()

    def __init__(self, like):
        self._problem = first(like)

    def ids(self, split):
        return ["there/0"] if split == "out-of-distribution" else []

    def problem(self, id):
        return replace(self._problem, id=id)


def test_letters_end_with_the_alphabet():
    assert [it.letter for it in options_of({"o": list(map(str, range(26)))}, "o", "")] == list(
        ascii_uppercase
    )
