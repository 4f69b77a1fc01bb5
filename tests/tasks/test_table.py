"""Rows of one's own as a task: files of JSON lines, data sets of the Hub."""

import json
import sys
from contextlib import suppress
from datetime import date
from decimal import Decimal
from hashlib import sha256
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stand_in_datasets
from potluck.tasks import Split, TaskError
from potluck.tasks import sources as sources_module
from potluck.tasks import table as table_module
from potluck.tasks.base import overlaps
from potluck.tasks.grading import ALONE, SYSTEM_PROMPTS, TAGS
from potluck.tasks.table import Grading, HubOptions, JsonlOptions
from tasks.graded import graded, tagged

GOOD = {"question": "What is 9 + 9?", "answer": "18"}


@pytest.fixture
def write(tmp_path):
    """A function that writes rows as JSON lines, texts as they are, and returns the path."""

    def write(*rows, name="rows.jsonl"):
        path = tmp_path / name
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_text("".join(line + "\n" for line in lines))
        return str(path)

    return write


def numbered(count, start=0):
    return [{"question": f"What is {i} + 1?", "answer": i + 1} for i in range(start, start + count)]


def table(path, **options):
    return JsonlOptions(path=path, **({"held_out": 0} | options)).make()


def from_hub(dataset="a/b", **options):
    return HubOptions(dataset=dataset, **({"held_out": 0} | options)).make()


def test_an_answer_is_a_number_or_a_text_and_only_what_follows_the_mark(write):
    for value, gold in ((18, "18"), (-1.5, "-1.5"), (" $1,234. ", "$1,234.")):
        assert table(write(GOOD | {"answer": value})).problem("jsonl/train/0").answer == gold
    path = write(GOOD | {"answer": "9 #### and 9 #### 18"}, GOOD | {"answer": "#### 7"})
    with pytest.raises(TaskError, match="line 1 has ' and 9 #### 18' as 'answer'"):
        table(path, answer_after="####")
    with pytest.raises(TaskError, match="line 1 has an 'answer' without '####', which ends"):
        table(write(GOOD), answer_after="####")
    path = write(GOOD | {"answer": "It is ...\n#### 18"})
    assert table(path, answer_after="####").problem("jsonl/train/0").answer == "18"


def test_a_question_may_be_messages_and_their_system_prompt_holds(write):
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "9 + 9?"}]
    task = table(write(GOOD | {"question": said}, GOOD | {"question": said[1:]}, GOOD))
    (one, two, three) = map(task.problem, task.ids("train"))
    assert (one.system, one.question) == ("Be brief.", "9 + 9?")
    assert (two.system, two.question) == (SYSTEM_PROMPTS["number"], "9 + 9?")
    assert three.system == SYSTEM_PROMPTS["number"]
    task = table(write(GOOD | {"question": said}), system_prompt="The recipe's.")
    assert task.problem("jsonl/train/0").system == "The recipe's."


def test_the_built_in_prompt_asks_for_the_tags_where_tags_are_asked_for(write):
    assert ALONE.keys() == set(get_args(Grading))
    for grading, alone in ALONE.items():
        choice = {"options": "some"} if grading == "choice" else {}
        row = GOOD | {"some": ["17", "18"]}
        asked = table(write(row), grading=grading, **choice).problem("jsonl/train/0").system
        assert alone in asked
        assert all(tag in asked for tag in TAGS)
    for without in ({"tags": False}, {"answer": ""}):
        assert table(write(GOOD), **without).problem("jsonl/train/0").system == ""


HI = {"content": "Hi"}
BAD_ROWS = {
    "no object": ([], r"is \[\]; expected an object with a question"),
    "no column": ({"promt": 1, "x": 2}, "has no column 'question'; it has promt, x"),
    "an empty question": (GOOD | {"question": " "}, "has an empty 'question'"),
    "messages without content": (GOOD | {"question": [{"role": "user"}]}, "expected a text, or m"),
    "an assistant": (GOOD | {"question": [HI | {"role": "assistant"}]},
                     r"messages of \['assistant'\] as 'question'; expected 'user' and 'assi"),
    "an escape": (GOOD | {"question": "9\x1b[2J"}, r"has '\\x1b' at 1 of 'question'"),
    "an escape in a message": (
        GOOD | {"question": [{"role": "system", "content": "\x1b"}, HI | {"role": "user"}]},
        r"has '\\x1b' at 0 of 'question'"),
    "an empty answer": (GOOD | {"answer": "  "}, "has an empty 'answer'"),
    "yes": (GOOD | {"answer": True}, "has True as 'answer'; expected a text or a number"),
    "a list": (GOOD | {"answer": ["18"]}, r"has \['18'\] as 'answer'; expected a text or a number"),
    "words": (GOOD | {"answer": "eighteen"}, "needs one decimal number; choose task.grading = 'ex"),
    "not JSON": ("9 + 9?", r"is '9 \+ 9\?', which is not JSON; expected an object"),
    "too deep": ("[" * 20_000, "has lists or objects too deep in each other"),
    "a huge integer": ("9" * 5_000, "has a whole number with too many digits"),
    "a surrogate": (GOOD | {"question": "9\ud800"}, r"has '\\ud800' at 1 of 'question'"),
    "a long row": (GOOD | {"x": "y" * 2**20}, "has more than 1048576 bytes"),
}  # fmt: skip


def test_a_row_that_is_no_problem_is_named_with_its_file_and_line(write):
    for row, message in BAD_ROWS.values():
        path = write(GOOD, row)
        with pytest.raises(TaskError, match=f"rows.jsonl, line 2 .*{message}") as caught:
            table(path)
        assert str(caught.value).isprintable()
        assert len(str(caught.value).replace(path, "")) < 200


def test_a_file_that_is_empty_missing_or_not_named_is_told(write, tmp_path):
    with pytest.raises(TaskError, match=r"rows\.jsonl is empty \(0 bytes\)"):
        table(write())
    none = str(tmp_path / "none.jsonl")
    with pytest.raises(TaskError, match=r"cannot read .*none\.jsonl .*object a line.*task\.path"):
        table(none)
    with pytest.raises(TaskError, match=r"cannot read .*none\.jsonl .* in task\.validation"):
        table(write(GOOD), validation=none)
    with pytest.raises(TaskError, match=r"task\.path is empty; expected a file"):
        table("")


def test_rows_beyond_what_memory_holds_are_refused(write, monkeypatch):
    monkeypatch.setattr(sources_module, "MOST_ROWS", 2)
    table(write(GOOD, GOOD))
    with pytest.raises(TaskError, match=r"rows\.jsonl has more than 2 rows; give fewer"):
        table(write(GOOD, GOOD, GOOD))


parts = [json.dumps(GOOD), "\n", '"', "{", "[]", "[", "}", ",", "\t", "a", "\r"]


@given(st.binary() | st.lists(st.sampled_from(parts)).map(lambda parts: "".join(parts).encode()))
def test_any_bytes_load_or_are_a_task_error(tmp_path_factory, raw):
    for ending in ("jsonl", "csv", "tsv"):
        path = tmp_path_factory.mktemp("bytes") / f"rows.{ending}"
        path.write_bytes(raw)
        with suppress(TaskError):
            names = {"question": "a", "answer": "", "columns": ("a", "b")}
            assert table(str(path), **({} if ending == "jsonl" else names)).ids("train")


def test_each_file_is_a_split_and_ids_are_positions(write):
    task = table(
        write(*numbered(3), name="a"),
        validation=write(*numbered(2, 10), name="b"),
        out_of_distribution=write(*numbered(1, 20), name="c"),
        held_out=512,  # counts only where it is needed
    )
    assert {split: list(task.ids(split)) for split in get_args(Split)} == {
        "train": ["jsonl/train/0", "jsonl/train/1", "jsonl/train/2"],
        "validation": ["jsonl/validation/0", "jsonl/validation/1"],
        "out-of-distribution": ["jsonl/out-of-distribution/0"],
    }
    assert task.problem("jsonl/validation/1").answer == "12"


def test_problems_of_smallest_hash_are_held_out_wherever_they_stand(write):
    rows = numbered(40)
    task = table(write(*rows), held_out=10)
    asked = {f"jsonl/train/{i}": row["question"].lower() for i, row in enumerate(rows)}
    ranked = sorted(asked, key=lambda id: sha256(asked[id].encode()).hexdigest())
    assert list(task.ids("validation")) == ranked[:10]
    assert list(task.ids("train")) == [id for id in asked if id not in ranked[:10]]
    backwards = table(write(*rows[::-1]), held_out=10)
    assert {task.problem(id).question for id in ranked[:10]} == {
        backwards.problem(id).question for id in backwards.ids("validation")
    }


def test_where_no_number_is_given_a_tenth_is_held_out_but_never_more_than_512(write):
    for rows, held_out in ((2, 1), (49, 4), (5200, 512)):
        task = JsonlOptions(path=write(*numbered(rows))).make()
        assert len(task.ids("validation")) == held_out
        assert len(task.ids("train")) == rows - held_out
    with pytest.raises(TaskError, match="has 1 problems to train on"):
        JsonlOptions(path=write(GOOD)).make()


def test_rows_that_ask_the_same_are_held_out_together(write):
    rows = [row for row in numbered(40) for _ in range(3)]
    rows[1] = rows[1] | {"question": "  WHAT is 0\n+ 1? "}
    task = table(write(*rows), held_out=10)
    assert 10 <= len(task.ids("validation")) <= 12
    assert not list(overlaps(task))


def test_too_few_rows_to_hold_any_out_are_told_with_the_way_out(write):
    with pytest.raises(TaskError, match=r"has 10 problems .* 10 would be .*task\.held_out"):
        table(write(*numbered(10)), held_out=10)
    with pytest.raises(TaskError, match="asks one question too often"):
        table(write(*[GOOD] * 10), held_out=3)
    # Without rows to train on nothing is held out.
    task = table("", out_of_distribution=write(*numbered(2)), held_out=512)
    assert [len(task.ids(split)) for split in get_args(Split)] == [0, 0, 2]


def test_the_digest_changes_with_every_column_and_not_with_their_order(write):
    row = GOOD | {"level": 3}
    changes = {"question": "What is 9 + 8?"}, {"answer": "17"}, {"level": 4}, {"more": 1}
    digests = [table(write(row | change)).digest for change in ({}, *changes)]
    assert len(set(digests)) == 5
    there = table(write(GOOD | {"more": {"a": 1, "b": 2}}))
    assert table(write({"more": {"b": 2, "a": 1}} | GOOD)).digest == there.digest


def test_the_digest_tells_rules_of_grading_apart_where_the_problems_are_the_same(write):
    """With a prompt of one's own no problem shows by which rules it is graded."""
    rules = [{}, {"grading": "exact"}, {"grading": "math"}, {"grading": "math-verify"},
             {"tags": False}, {"tolerance": 0.1}, {"tags": False, "last_answer": "number"},
             {"tags": False, "last_answer": "box"}]  # fmt: skip
    tasks = [table(write(GOOD), system_prompt="p", **its) for its in rules]
    assert len({repr(task.problem("jsonl/train/0")) for task in tasks}) == 1
    assert len({task.digest for task in tasks}) == len(rules)


def test_each_grading_has_its_rule_in_tags_and_nothing_else(write):
    for grading, gold, right, wrong in (
        ("number", "18", ("18", " $18.00 "), ("19", "2*9", "18, 18", "")),
        ("exact", " New York ", ("New York", "\nNew York "), ("new york", "New  York")),
        ("math", r"\frac{1}{2}", (r"\frac{2}{4}",), ("1-0.5",)),
        ("math-verify", r"\frac{1}{2}", (r"\frac{2}{4}", "1-0.5"), ("1",)),
    ):
        task = table(write(GOOD | {"answer": gold}), grading=grading)
        rewards = graded(task, *map(tagged, right + wrong), right[0], tagged(right[0]) + "!")
        assert rewards == [1] * len(right) + [0] * (len(wrong) + 2), grading
    # Without tags the whole text is the answer.
    task = table(write(GOOD), tags=False)
    assert graded(task, "18", " 18.0\n", "It is 18", tagged("18")) == [1, 1, 0, 0]


def test_without_tags_the_answer_may_be_the_last_number_or_box(write):
    path = write(GOOD)
    for last, right, wrong in (
        ("number", "9 + 9 is 18.", r"\boxed{18}, of 2"), ("box", r"\boxed{18}, of 2", "It is 18."),
    ):  # fmt: skip
        for grading in ("number", "math", "math-verify"):
            task = table(path, tags=False, last_answer=last, grading=grading)
            assert graded(task, right, wrong) == [1, 0], (last, grading)
    with pytest.raises(TaskError, match=r"last_answer is 'box', but with task\.tags .* false or"):
        table(path, last_answer="box")


def test_math_without_its_library_names_the_extra(write, monkeypatch):
    def absent():
        raise TaskError("pip install 'potluck[math]'")

    monkeypatch.setattr(table_module, "require_algebra", absent)
    for grading in ("math", "math-verify"):
        with pytest.raises(TaskError, match=r"potluck\[math\]"):
            table(write(GOOD), grading=grading)
    table(write(GOOD), grading="exact")


def test_rows_without_answers_load_and_are_not_graded_here(write):
    task = table(write({"question": "Write a poem."}), answer="")
    with pytest.raises(TaskError, match=r"no answers to grade by; give a \[\[reward\]\]"):
        graded(task, "Roses are red")


@pytest.fixture
def hub(monkeypatch):
    """A function that stands in for the Hub; what it was asked for is in ``hub.asked``."""

    def stand_in(rows):
        def load_dataset(*args, **options):
            stand_in.asked.append((args, options))
            return rows

        monkeypatch.setitem(sys.modules, "datasets", stand_in_datasets.stand_in(load_dataset))

    stand_in.asked = []
    return stand_in


def test_the_hub_is_asked_for_the_splits_that_are_named_and_trusted_with_nothing(hub):
    hub(numbered(3))
    task = from_hub(subset="main", train="train[:9]", out_of_distribution="odd", held_out=1)
    assert hub.asked == [(("a/b", "main"), {"split": split}) for split in ("train[:9]", "odd")]
    assert [len(task.ids(split)) for split in get_args(Split)] == [2, 1, 3]
    assert set(task.ids("out-of-distribution")) == {
        f"hub/out-of-distribution/{i}" for i in range(3)
    }
    from_hub()
    assert hub.asked[-1] == (("a/b", None), {"split": "train"})


def test_dates_and_decimals_come_as_texts_and_what_is_no_json_is_left_out_with_a_note(hub):
    row = {"when": date(2026, 1, 1), "price": Decimal("9.90"), "days": [date(2026, 1, 2)]}
    plain = {"level": [1, {"a": None}]}
    hub([GOOD | row | plain | {"image": object(), "raw": b"x"}] * 2)
    task = from_hub()
    texts = {"when": "2026-01-01", "price": "9.90", "days": ["2026-01-02"]}
    assert task.row("hub/train/0") == GOOD | texts | plain
    changed, left_out = task.notes
    assert (
        "dates, decimals and class labels as texts: 'when' ('2026-01-01'), 'price' ('9.90')"
        in changed
    )
    assert left_out.endswith("cannot hold: 'image' (object), 'raw' (bytes)")
    hub([GOOD | plain])
    assert from_hub().notes == ()


def test_a_bad_row_of_the_hub_and_an_empty_split_are_named(hub):
    hub([GOOD, {"text": "9?"}])
    with pytest.raises(TaskError, match=r"a/b train, row 1 has no column 'question'; it has text"):
        from_hub()
    hub([])
    with pytest.raises(TaskError, match="a/b train holds no problem"):
        from_hub()
    with pytest.raises(TaskError, match=r"task\.train is empty; expected a file or split"):
        from_hub(train="")


def test_a_folder_of_files_is_loaded_by_the_real_library(write, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", reason="the extra 'data' is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "set").mkdir()
    write(*numbered(4), name="set/train.jsonl")
    write(*numbered(2, 10), name="set/test.jsonl")
    task = from_hub(str(tmp_path / "set"), validation="test")
    assert [task.problem(id).answer for id in task.ids("train")] == ["1", "2", "3", "4"]
    assert task.row("hub/validation/1") == {"question": "What is 11 + 1?", "answer": 12}


@pytest.fixture
def library(tmp_path, monkeypatch):
    """The real library ``datasets``, with a cache of the test's own."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", reason="the extra 'data' is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return datasets


def labelled(library):
    """Three rows with class labels and numbers of 32 bits, in lists and dicts too."""
    label, short = library.ClassLabel(names=["neg", "pos"]), library.Value("float32")
    kinds = {
        "question": library.Value("string"),
        "answer": short,
        "mood": label,
        "moods": library.List(label),
        "deep": {"mood": label, "sizes": library.List(short)},
        "long": library.Value("float64"),
    }
    row = {"answer": 0.1, "mood": 1, "moods": [0, -1], "deep": {"mood": 0, "sizes": [0.3, None]}}
    rows = [{"question": f"{i}?", **row, "long": 0.10000000149011612} for i in range(3)]
    return library.Dataset.from_list(rows, features=library.Features(kinds))


@pytest.mark.parametrize("form", ["parquet", "Dataset", "DatasetDict"])
def test_class_labels_come_by_name_and_short_floats_as_written(library, tmp_path, form):
    folder = tmp_path / "set"
    rows = labelled(library)
    if form == "parquet":
        rows.to_parquet(folder / "train.parquet")
    elif form == "Dataset":
        rows.save_to_disk(folder)
    else:
        library.DatasetDict({"train": rows}).save_to_disk(folder)
    task = from_hub(str(folder), held_out=1)
    id = task.ids("train")[0]
    assert task.problem(id).answer == "0.1"
    texts = {"mood": "pos", "moods": ["neg", -1], "deep": {"mood": "neg", "sizes": [0.3, None]}}
    assert {key: task.row(id)[key] for key in texts} == texts
    assert task.row(id)["long"] == 0.10000000149011612
    assert "class labels as texts: 'mood' ('pos'), 'moods' (['neg', -1]), 'deep'" in task.notes[0]
    assert from_hub(str(folder), answer="mood", grading="exact", held_out=1).problem(id).answer == (
        "pos"
    )


def test_one_saved_part_is_read_and_another_is_not_made_of_it(library, tmp_path):
    folder = tmp_path / "set"
    plain = library.Dataset.from_list(numbered(4))
    plain.select([2, 0, 1]).save_to_disk(folder)
    task = from_hub(str(folder), held_out=1)
    questions = {task.problem(id).question for split in get_args(Split) for id in task.ids(split)}
    assert questions == {f"What is {i} + 1?" for i in range(3)}
    assert task.notes == ()
    with pytest.raises(TaskError, match=r"set is one part, 'train', .* has no split 'test'"):
        from_hub(str(folder), validation="test")


def test_a_file_as_a_data_set_is_named_and_its_folder_is_read(library, tmp_path):
    """As a file of parquet in task.path says: ``hub`` reads the folder."""
    (tmp_path / "set").mkdir()
    file = tmp_path / "set" / "rows.parquet"
    library.Dataset.from_list(numbered(4)).to_parquet(file)
    with pytest.raises(TaskError, match=r"is a parquet file; .* task.name = 'hub' reads a folder"):
        table(str(file))
    with pytest.raises(TaskError, match=r"task.dataset is the file .*; expected the folder that"):
        from_hub(str(file))
    assert len(from_hub(str(file.parent), held_out=1).ids("train")) == 3


@pytest.mark.parametrize("kind", ["pandas", "webdataset", "json.json.evil"])
def test_files_that_can_hold_code_are_not_read_however_the_recipe_names_them(kind, monkeypatch):
    """``dataset = "pandas"`` is the library's own reader of pickles, a recipe's word alone."""
    library = stand_in_datasets.stand_in(lambda *_, **__: pytest.fail("read"), kind=kind)
    monkeypatch.setitem(sys.modules, "datasets", library)
    with pytest.raises(TaskError, match=r"which may run what stands in it; expected files of parq"):
        from_hub("pandas")


def test_marks_blank_lines_and_line_ends_of_windows_are_no_part_of_a_row(tmp_path):
    path = tmp_path / "marked.jsonl"
    line = b'{"question": "1+1?", "answer": "2"}\r\n\r\n'
    path.write_bytes(b"\xef\xbb\xbf" + 2 * line)
    task = table(str(path))
    assert [task.row(id) for id in task.ids("train")] == [{"question": "1+1?", "answer": "2"}] * 2
    path.write_bytes(b'{"question": "caf\xe9"}\n')
    with pytest.raises(TaskError, match="line 1 has byte 0xe9 at 17, which is not UTF-8"):
        table(str(path))
