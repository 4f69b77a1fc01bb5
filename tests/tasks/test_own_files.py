"""Files of one's own as people have them: arrays, tables, odd numbers, questions in two columns.

The shapes are those of SVAMP, GSM-Hard and MGSM; the rows are made up.
"""

import copy
import json
import pickle

import pytest

from potluck.tasks import TaskError, json_rows
from potluck.tasks.base import Shortened
from potluck.tasks.json_rows import JsonNumber
from potluck.tasks.table import HubOptions, JsonlOptions
from tasks.graded import graded, tagged

SVAMP = [
    {"ID": f"chal-{i}", "Body": f"Ada has {i} pens.", "Question": "How many has she?", "Answer": i}
    for i in range(1, 4)
]
HARD = """\
{"input": "How much is it?", "target": 72000}
{"input": "And this?", "target": 0.1}
{"input": "So little?", "target": 2.0107e-06}
{"input": "With noise?", "target": 3244047.0999999996}
{"input": "A whole one?", "target": -9867630.0}
{"input": "Far off?", "target": 1E3}
"""
MGSM = "Janets Enten legen 16 Eier.\t18\nEin Gewand kostet 2.125 Dollar, wie viel?\t2,125\n"


@pytest.fixture
def table(tmp_path):
    """A function that writes a file and makes a task of it."""

    def table(text, name="rows.jsonl", **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return JsonlOptions(path=str(path), **({"held_out": 0} | options)).make()

    return table


def asked(task):
    return [(p.question, p.answer) for p in map(task.problem, task.ids("train"))]


def paid(task, answer, at=0):
    return graded(task, tagged(answer), id=task.ids("train")[at])[0]


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_file_like_svamp_loads_without_a_script(table):
    names = {"question": "{Body} {Question}", "answer": "Answer"}
    for text in (json.dumps(SVAMP), json.dumps(SVAMP, indent=4), "\ufeff\n" + json.dumps(SVAMP)):
        task = table(text, "SVAMP.json", **names)
        assert asked(task) == [(f"Ada has {i} pens. How many has she?", str(i)) for i in (1, 2, 3)]
    assert task.row("jsonl/train/0") == SVAMP[0]
    assert table(lines(*SVAMP), **names).digest == task.digest


def test_a_file_like_gsm_hard_loads_without_a_script(table):
    task = table(HARD, question="input", answer="target", tolerance=1e-6)
    golds = [gold for _, gold in asked(task)]
    assert golds == ["72000", "0.1", "0.0000020107", "3244047.0999999996", "-9867630.0", "1000"]
    assert paid(task, "3244047.1", at=3) == paid(task, "-9,867,630", at=4) == 1
    exact = table(HARD, question="input", answer="target")
    assert paid(exact, "3244047.1", at=3) == 0
    assert exact.digest != task.digest


def test_a_file_like_mgsm_loads_without_a_script(table):
    task = table(MGSM, "mgsm_de.tsv", columns=("question", "answer"))
    golds = [gold for _, gold in asked(task)]
    assert golds == ["18", "2,125"]
    assert paid(task, "2125", at=1) == 1
    with pytest.raises(TaskError, match="line 2 has no column 'question'; it has Janets Enten leg"):
        table(MGSM, "mgsm_de.tsv")


def test_a_csv_file_has_its_names_in_the_first_line(table):
    text = 'question,answer,more\r\n"Is 9, or ""18"", 9+9?\nSay",18,x\r\n\r\n9+8?,17,\r\n'
    task = table(text, "rows.CSV")
    assert asked(task) == [('Is 9, or "18", 9+9?\nSay', "18"), ("9+8?", "17")]
    assert task.row("jsonl/train/1") == {"question": "9+8?", "answer": "17", "more": ""}


BAD_TABLES = {
    "too few": ("question,answer\n9?,9\n8?\n", "line 3 has 1 columns; expected 2"),
    "an open quotation mark": ('question,answer\n"9?,9\n', "unexpected end of data; a text with"),
    "a mark in the middle": ('question,answer\n"9"?,9\n', "line 2: .* expected after"),
    "a cell without end": (
        'question,answer\n"' + ("9" * 1000 + "\n") * 1100,
        "has a cell of more than 1048576",
    ),
    "a line without end": ("question,answer\n" + "9" * 2**21, "has more than 1048576 bytes"),
    "names alone": ("question,answer\n", "holds no problem"),
}
BAD_ARRAYS = [
    ("[1, 2]", "element 0 is 1; expected an object"),
    ("[]", "holds no problem"),
    ('[{"question": "9?"}', "which is not JSON; expected one JSON array, or one object a line"),
]


def test_a_table_or_an_array_that_is_none_is_told_with_its_line(table):
    for bad, name in ((BAD_TABLES.values(), "rows.csv"), (BAD_ARRAYS, "rows.json")):
        for text, message in bad:
            with pytest.raises(TaskError, match=message):
                table(text, name)


def test_an_array_beyond_memory_is_refused(table, monkeypatch):
    monkeypatch.setattr(json_rows, "LONGEST_DOCUMENT_BYTES", 20)
    with pytest.raises(
        TaskError, match="is one JSON document of more than 20 bytes; write one object a line"
    ):
        table(json.dumps(SVAMP), question="Body", answer="Answer")


def test_a_template_puts_texts_and_numbers_in_and_reads_them_once(table):
    row = {"a b": "{n}", "n": 7, "x": 0.10, "answer": 1}
    task = table(json.dumps(row), question="{{{a b}}} {n}/{x} }}{{")
    assert asked(task)[0][0] == "{{n}} 7/0.1 }{"


def test_a_template_names_columns_and_does_nothing_else(table):
    for template, message in (
        ("{Body", "'{Body', with a '{' alone at 0; a column stands in two"),
        ("{}", "with a '{' alone at 0"),
        ("{Bodi}", "has no column 'Bodi'; it has ID, Body, Question, Answer"),
        ("{Body.__class__}", "has no column 'Body.__class__'"),
        ("{list}", r"has \[1\] as 'list'; expected a text or a number"),
    ):
        row = SVAMP[0] | ({"list": [1]} if "list" in template else {})
        with pytest.raises(TaskError, match=message):
            table(lines(row), question=template, answer="Answer", skip_bad=True)


def test_a_number_of_json_is_a_float_with_its_own_text():
    number = JsonNumber("0.10")
    for copied in (number, copy.deepcopy(number), pickle.loads(pickle.dumps(number))):
        assert (copied, copied.text, copied * 2) == (0.1, "0.10", 0.2)


def test_a_number_that_no_answer_could_be_is_refused(table):
    for text in ("1E400", "1e-300", "NaN", "Infinity", "1e999999999"):
        with pytest.raises(TaskError, match="needs one decimal number"):
            table('{"question": "9?", "answer": ' + text + "}")


def test_floats_of_the_hub_are_written_without_an_exponent(monkeypatch):
    rows = [("row", {"question": f"{x}?", "answer": x}) for x in (72000.0, 2.0107e-06, 1e22, 0.5)]
    monkeypatch.setattr("potluck.tasks.sources.hub_rows", lambda *_, **__: rows)
    golds = [gold for _, gold in asked(HubOptions(dataset="a/b", held_out=0).make())]
    assert golds == ["72000", "0.0000020107", "10000000000000000000000", "0.5"]


def test_a_tolerance_is_for_numbers_alone(table):
    columns = {"question": "Body", "answer": "Answer"}
    for grading in ("exact", "math", "math-verify"):
        with pytest.raises(TaskError, match=f"tolerance is 0.01, but grading '{grading}' has none"):
            table(lines(SVAMP[0]), **columns, grading=grading, tolerance=0.01)


def test_bad_rows_are_counted_and_left_out_where_that_is_asked_for(table):
    good = {"question": "9?", "answer": 9}
    text = lines(good, {"question": "8?"}, good | {"answer": "nine"}) + "{no JSON}\n" + lines(good)
    task = table(text, skip_bad=True)
    assert list(task.ids("train")) == ["jsonl/train/0", "jsonl/train/3"]
    (note,) = task.notes
    assert note.startswith("jsonl: 3 of 5 rows are left out, the first as ")
    assert "rows.jsonl, line 4 is '{no JSON}'" in note
    with pytest.raises(TaskError, match=r"line 4 .* is not JSON"):
        table(text)
    with pytest.raises(TaskError, match=r"line 2 has no .*; 2 of 4 rows are no .*: task.skip_bad"):
        table(text.replace("{no JSON}\n", ""))
    for skip_bad in (False, True):  # where every row is bad, the recipe is
        with pytest.raises(TaskError, match=r"line 1 has no column .* it has ID, Body, [^;]*$"):
            table(lines(*SVAMP), skip_bad=skip_bad)


def test_problems_that_are_too_long_are_left_out_and_counted(table):
    rows = [{"question": "?" * n, "answer": n} for n in (3, 30, 4, 31)]
    task = table(lines(*rows), skip_bad=True)
    assert task.notes == ()
    short = Shortened(task, lambda problem: len(problem.question) < 10, "limit = 10")
    assert list(short.ids("train")) == ["jsonl/train/0", "jsonl/train/2"]
    assert short.notes == ("2 of 4 problems have prompts longer than limit = 10 and are left out",)
    assert short.digest != task.digest
    same = Shortened(task, lambda problem: True, "limit = 99")
    assert (same.digest, same.notes) == (task.digest, ())
    with pytest.raises(TaskError, match="all 4 train prompts are longer than limit = 1; raise it"):
        Shortened(task, lambda problem: False, "limit = 1")


def test_a_long_cell_of_a_code_task_is_read(table):
    text = f'question,answer,tests\n9?,9,"{"9 " * 70_000}"\n'
    assert len(table(text, "rows.csv").row("jsonl/train/0")["tests"]) == 140_000


def test_a_question_with_two_answers_is_told_and_one_with_two_spellings_is_not(table):
    good = {"question": "9?", "answer": "9"}
    (note,) = table(lines(good, good | {"answer": "8"}, {"question": "7?", "answer": 7})).notes
    assert note.startswith("jsonl: 1 of 2 questions come with more than one answer, first '9?'")
    assert table(lines(good, good, good | {"answer": "9.0"})).notes == ()


def test_exact_answers_are_the_same_however_composed(table):
    gold = {"question": "?", "answer": "cafe\u0301\r\nbar"}
    task = table(lines(gold), grading="exact")
    assert paid(task, "caf\u00e9\nbar") == 1
    assert paid(task, "cafe\nbar") == 0


REPEATED = [
    ("rows.csv", 'question,answer,answer\n"9?",1,2\n', "'answer' ("),
    ("rows.tsv", "question\tanswer\tanswer\n9?\t1\t2\n", "'answer' ("),
    ("rows.csv", "question,note,note,answer\n9?,a,b,2\n", "'note' ("),
    ("rows.jsonl", '{"question": "9?", "answer": 1, "answer": 2}\n', "'answer' ("),
    ("rows.json", '[{"question": "8?", "question": "9?", "answer": 2}]', "'question' ("),
    ("rows.csv", "question,answer,answer\n9?,2,2\n", ""),
    ("rows.csv", "question,answer,,\n9?,2,,\n", ""),
    ("rows.jsonl", '{"question": "9?", "answer": 2, "answer": 2}\n', ""),
    ("rows.jsonl", '{"question": "9?", "answer": 2, "more": {"answer": 3}}\n', ""),
]


@pytest.mark.parametrize(("name", "text", "told"), REPEATED)
def test_of_two_values_of_one_name_the_last_counts_with_a_note(table, name, text, told):
    task = table(text, name)
    assert asked(task) == [("9?", "2")]
    assert ("".join(task.notes).partition("the last counts: ")[2]).startswith(told)
    assert bool(task.notes) == bool(told)


EXACT_AND_RIGHT = {
    "caf\u00e9": ("cafe\u0301", "caf\u00e9", " cafe\u0301 \r\n"),
    "cafe\u0301": ("caf\u00e9", "cafe\u0301"),
    "\u1ec7": ("e\u0323\u0302", "\u1eb9\u0302", "e\u0302\u0323"),
    "\uac00": ("\u1100\u1161",),
    "one\r\ntwo": ("one\ntwo", "one\rtwo", "one\r\ntwo\r\n"),
    "one\ntwo": ("one\r\ntwo", "\r\none\rtwo\r"),
    "caf\u00e9\r\nth\u00e9": ("cafe\u0301\nthe\u0301",),
}
EXACT_AND_WRONG = {
    "caf\u00e9": ("cafe", "caf\u00e8", "cafe\u0300", "Caf\u00e9", "cafe\u0301\u0301", "caf \u00e9"),
    "one\r\ntwo": ("one two", "onetwo", "one\n\ntwo", "one\r\r\ntwo", "two\none", "one\\ntwo"),
    "x\u00b2": ("x2", "x^2"),
    "\ufb01t": ("fit",),
    "\u2460": ("1",),
    "\uff11": ("1",),
}


def test_exact_takes_each_way_to_compose_a_letter_and_to_end_a_line(table):
    for cases, expected in ((EXACT_AND_RIGHT, 1.0), (EXACT_AND_WRONG, 0.0)):
        for gold, answers in cases.items():
            task = table(lines({"question": "q", "answer": gold}), grading="exact")
            for answer in answers:
                assert paid(task, answer) == expected, (gold, answer)
