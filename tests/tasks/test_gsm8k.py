import json
import sys
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nouns import completion
from potluck.tasks import TaskError
from potluck.tasks.gsm8k import SYSTEM_PROMPT, Gsm8kOptions, is_right
from potluck.tasks.sources import LONGEST_LINE_BYTES
from potluck.types import Problem
from stand_in_datasets import stand_in

GOOD = '{"question": "What is 9 + 9?", "answer": "#### 18"}'
BAD_LINES = {
    "not json": ("What is 9 + 9?", "is 'What is 9 \\+ 9\\?', which is not JSON"),
    "cut off": (GOOD[:-5], "which is not JSON"),
    "too deep": ("[" * 20_000, "which is not JSON"),
    "a huge integer": ("9" * 5_000, "which is not JSON"),
    "a list": ("[]", "is \\[\\], without the key 'question'"),
    "null": ("null", "is None, without the key 'question'"),
    "no question": ('{"answer": "#### 18"}', "without the key 'question'"),
    "no answer": ('{"question": "9 + 9?"}', "without the key 'answer'"),
    "a question of another type": ('{"question": 9, "answer": "#### 18"}', "has 9 as 'question'"),
    "an answer of another type": ('{"question": "9?", "answer": 18}', "has 18 as 'answer'"),
    "an empty question": ('{"question": " ", "answer": "#### 18"}', "has an empty 'question'"),
    "an escape": ('{"question": "9\\u001b[2J", "answer": "#### 18"}', r"has '\\x1b' at 1 of"),
    "a surrogate": ('{"question": "9\\ud800", "answer": "#### 18"}', r"has '\\ud800' at 1 of"),
    "no mark": (
        '{"question": "9?", "answer": "It is 18"}',
        "ends in 'It is 18'; expected '#### 18'",
    ),
    "no gold": ('{"question": "9?", "answer": "####"}', "has '' after the '####'"),
    "gold in words": ('{"question": "9?", "answer": "#### eighteen"}', "has ' eighteen' after"),
    "two golds": ('{"question": "9?", "answer": "#### 1 #### 2"}', "has ' 1 #### 2' after"),
    "bad commas": ('{"question": "9?", "answer": "#### 17,18"}', "has ' 17,18' after"),
    "too long": ('"' + "x" * LONGEST_LINE_BYTES + '"', "more than 65536 bytes"),
}


@pytest.fixture(scope="module")
def real(gsm8k_path):
    return Gsm8kOptions(path=gsm8k_path).make()


def tagged(answer):
    return f"<think>x</think><answer>{answer}</answer>"


RESPELLED = {
    "as it is": "{}",
    "spacing": "\n  {} ",
    "thousands": "{:,}.0",
    "in math mode": "${}$",
    "boxed": "\\boxed{{{}}}",
    "boxed in math mode": " $\\boxed{{ {:,} }}$.\n",
}


@pytest.mark.parametrize("spelling", RESPELLED)
def test_every_gold_of_the_test_file_is_right_however_it_is_spelled(real, spelling):
    problems = [real.problem(f"gsm8k/test/{i}") for i in range(1319)]
    finished = [completion(problem=p.id) for p in problems]
    texts = [tagged(RESPELLED[spelling].format(int(p.answer))) for p in problems]
    assert real.rewards(problems, finished, texts) == [1.0] * 1319


def test_every_gold_of_the_test_file_is_right_for_its_problem_only(real):
    problems = [real.problem(f"gsm8k/test/{i}") for i in range(1319)]
    for this, following in pairwise([*problems, problems[0]]):
        assert is_right(this, tagged(following.answer)) == (this.answer == following.answer)


def test_every_gold_of_the_files_is_an_integer_without_commas(real, gsm8k_path):
    for part, count in (("train", 7473), ("test", 1319)):
        lines = Path(gsm8k_path, f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
        assert len(lines) == count
        for i, line in enumerate(lines):
            problem, row = real.problem(f"gsm8k/{part}/{i}"), json.loads(line)
            assert problem.question == row["question"]
            assert int(problem.answer) == int(row["answer"].split("#### ")[1].replace(",", ""))
            assert "," not in problem.answer


def test_the_real_splits_and_digest_are_the_same_for_ever(real, gsm8k_path):
    """Golden: who compares two runs must know that they had the same problems."""
    sizes = [len(real.ids(split)) for split in ("train", "validation", "out-of-distribution")]
    assert sizes == [7473 - 512, 512, 0]
    assert real.ids("validation")[:3] == [
        "gsm8k/train/1338",
        "gsm8k/train/6870",
        "gsm8k/train/7147",
    ]
    assert real.ids("train")[:2] == ["gsm8k/train/1", "gsm8k/train/2"]
    digest = Gsm8kOptions(path=gsm8k_path, system_prompt="p").make().digest
    assert digest == "0e307cf5e91f41afe22a01ac6943c3b621f335795d1b3a6229df9393d2ecfee2"
    first = real.problem("gsm8k/test/0")
    assert first.question.startswith("Janet\u2019s ducks lay 16 eggs")
    assert first.answer == "18"


def test_the_paper_validates_on_the_first_512_of_test_and_trains_on_all_of_train(made_up_path):
    task = Gsm8kOptions(path=made_up_path, validation="test").make()
    assert list(task.ids("train")) == [f"gsm8k/train/{i}" for i in range(540)]
    assert list(task.ids("validation")) == [f"gsm8k/test/{i}" for i in range(512)]
    assert not task.ids("out-of-distribution")


def test_a_test_file_of_fewer_than_512_is_all_validation(tmp_path, write_gsm8k):
    task = Gsm8kOptions(path=write_gsm8k(tmp_path, train=3, test=4), validation="test").make()
    assert (len(task.ids("train")), len(task.ids("validation"))) == (3, 4)


def test_the_512_training_problems_of_smallest_hash_are_held_out(made_up_path):
    task = Gsm8kOptions(path=made_up_path).make()
    texts = {f"gsm8k/train/{i}": f"What is {i} + 1 (train)?" for i in range(540)}
    ranked = sorted(texts, key=lambda id: sha256(f"{id}{texts[id]}".encode()).hexdigest())
    assert list(task.ids("validation")) == ranked[:512]
    assert list(task.ids("train")) == [id for id in texts if id not in ranked[:512]]


def test_problems_outside_every_split_are_still_known(made_up_path):
    assert Gsm8kOptions(path=made_up_path).make().problem("gsm8k/test/3").answer == "4"
    assert (
        Gsm8kOptions(path=made_up_path, validation="test").make().problem("gsm8k/test/529").answer
        == "530"
    )


def test_too_few_problems_to_hold_any_out_is_an_error_that_shows_the_way(tmp_path, write_gsm8k):
    path = write_gsm8k(tmp_path, train=512)
    with pytest.raises(TaskError, match=r"has 512 problems .* set task.validation = 'test'"):
        Gsm8kOptions(path=path).make()


def test_the_built_in_prompt_names_the_tags_and_a_prompt_of_ones_own_replaces_it(made_up_path):
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        assert tag in SYSTEM_PROMPT
    assert Gsm8kOptions(path=made_up_path).make().problem("gsm8k/train/0").system == SYSTEM_PROMPT
    task = Gsm8kOptions(path=made_up_path, system_prompt="Be brief.").make()
    assert task.problem("gsm8k/train/0").system == "Be brief."


def test_the_gold_is_the_number_after_the_mark_without_its_commas(tmp_path):
    row = {"question": "How many?", "answer": "1,000 #s and 80.\n####  1,234,080 \n"}
    for name in ("train.jsonl", "test.jsonl"):
        (tmp_path / name).write_text(json.dumps(row))
    task = Gsm8kOptions(path=str(tmp_path), validation="test").make()
    assert task.problem("gsm8k/train/0").answer == "1234080"


def test_right_is_the_format_and_the_number_together():
    problem = Problem("gsm8k/train/0", "9 + 9?", "1080")
    for answer in ("1080", "1,080", " $1080.00 ", "1080."):
        assert is_right(problem, tagged(answer))
    for answer in ("1081", "-1080", "108e1", "2*540", "1080%", "1080, 1080", "1080 eggs", ""):
        assert not is_right(problem, tagged(answer))
    for text in ("1080", "<answer>1080</answer>", "#### 1080", tagged("1080") + "!"):
        assert not is_right(problem, text)


@pytest.mark.parametrize("old, new", [("What is 7", "What was 7"), ("#### 8", "#### 9")])
def test_the_digest_changes_with_every_question_and_gold(tmp_path, write_gsm8k, old, new):
    path = write_gsm8k(tmp_path)
    before = Gsm8kOptions(path=path).make().digest
    for name in ("train.jsonl", "test.jsonl"):
        text = (tmp_path / name).read_text()
        assert text.count(old) >= 1
        (tmp_path / name).write_text(text.replace(old, new, 1))
        assert Gsm8kOptions(path=path).make().digest != before
        (tmp_path / name).write_text(text)
    assert Gsm8kOptions(path=path).make().digest == before


def test_blank_lines_and_line_ends_of_windows_change_nothing(tmp_path, write_gsm8k):
    before = Gsm8kOptions(path=write_gsm8k(tmp_path)).make().digest
    raw = (tmp_path / "train.jsonl").read_bytes()
    (tmp_path / "train.jsonl").write_bytes(raw.replace(b"\n", b"\r\n\r\n"))
    assert Gsm8kOptions(path=str(tmp_path)).make().digest == before


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(
        TaskError, match=r"task.path is '.*nowhere', but there is no folder /.*nowhere"
    ):
        Gsm8kOptions(path=str(tmp_path / "nowhere")).make()


@pytest.mark.parametrize("name", ["train.jsonl", "test.jsonl"])
def test_a_file_that_is_not_there_is_named(tmp_path, write_gsm8k, name):
    path = write_gsm8k(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(TaskError, match=f"cannot read .*/{name} .*expected train.jsonl and test"):
        Gsm8kOptions(path=path).make()


@pytest.mark.parametrize("name", ["train.jsonl", "test.jsonl"])
def test_a_file_without_problems_is_named(tmp_path, write_gsm8k, name):
    path = write_gsm8k(tmp_path)
    (tmp_path / name).write_text("\n\n")
    with pytest.raises(TaskError, match=f"{name} holds no problem"):
        Gsm8kOptions(path=path).make()


@pytest.mark.parametrize("line, message", BAD_LINES.values(), ids=BAD_LINES)
def test_a_line_that_is_no_problem_is_named_with_its_file(tmp_path, write_gsm8k, line, message):
    path = write_gsm8k(tmp_path)
    (tmp_path / "test.jsonl").write_text(f"{GOOD}\n{line}\n")
    with pytest.raises(TaskError, match=f"/test.jsonl, line 2 .*{message}") as caught:
        Gsm8kOptions(path=path).make()
    said = str(caught.value)
    assert said.isprintable()
    assert len(said.replace(path, "")) < 200


def test_bytes_that_are_not_utf8_are_named(tmp_path, write_gsm8k):
    path = write_gsm8k(tmp_path)
    (tmp_path / "train.jsonl").write_bytes(b'{"question": "caf\xe9"}\n')
    with pytest.raises(
        TaskError, match=r"train\.jsonl, line 1 has byte 0xe9 at 17, which is not UTF-8"
    ):
        Gsm8kOptions(path=path).make()


@given(
    st.binary()
    | st.lists(st.sampled_from([GOOD, "\n", '"', "{", "####", "\\ud800"])).map(
        lambda parts: "".join(parts).encode()
    )
)
def test_any_bytes_load_or_are_a_task_error(tmp_path_factory, raw):
    folder = tmp_path_factory.mktemp("bytes")
    for name in ("train.jsonl", "test.jsonl"):
        (folder / name).write_bytes(raw)
    with suppress(TaskError):
        assert Gsm8kOptions(path=str(folder), validation="test").make().ids("validation")


def hub(monkeypatch, load_dataset):
    monkeypatch.setitem(sys.modules, "datasets", stand_in(load_dataset))


def test_the_hub_gives_the_same_task_as_the_files(monkeypatch, made_up_path):
    def load_dataset(name, config, *, split):
        assert (name, config) == ("openai/gsm8k", "main")
        lines = Path(made_up_path, f"{split}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    hub(monkeypatch, load_dataset)
    assert Gsm8kOptions().make().digest == Gsm8kOptions(path=made_up_path).make().digest


def test_a_bad_row_of_the_hub_is_named(monkeypatch):
    hub(monkeypatch, lambda name, config, *, split: [json.loads(GOOD), {"question": "9?"}])
    with pytest.raises(TaskError, match=r"openai/gsm8k train, row 1 is .*without the key 'answer'"):
        Gsm8kOptions().make()


def test_without_the_library_the_error_names_the_extra_and_the_other_way(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(TaskError, match=r"pip install 'potluck\[data\]', or download .* task.path"):
        Gsm8kOptions().make()


@pytest.mark.parametrize("error", [ConnectionError("no\nroute"), ValueError(), RuntimeError("x")])
def test_without_the_hub_the_error_says_why_and_names_the_other_way(monkeypatch, error):
    def load_dataset(name, config, *, split):
        raise error

    hub(monkeypatch, load_dataset)
    kind = type(error).__name__
    with pytest.raises(TaskError, match=rf"\({kind}: .*or download .* task.path") as caught:
        Gsm8kOptions().make()
    assert "\n" not in str(caught.value)


def test_files_need_neither_the_library_nor_the_hub(monkeypatch, made_up_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert Gsm8kOptions(path=made_up_path).make().ids("train")
