"""A day with a GPU, rehearsed on the CPU: every step once, by the program that users have."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import gpu_day
import gpu_table
import stand_in_datasets

pytestmark = pytest.mark.page

PUBLISHED = gpu_day.ROOT / "recipes" / "published"


def test_the_order_names_every_recipe_and_fits_into_forty_minutes(capsys):
    gpu_day.main(["--dry"])
    *lines, total = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == [step.name for step in gpu_day.STEPS]
    assert lines[0].split()[:4] == ["12", "min", "grpo", "gsm8k-grpo"]
    assert int(total.split()[0]) == sum(int(line.split()[0]) for line in lines) <= 40
    named = {step.recipe for step in gpu_day.STEPS if step.recipe}
    assert named == {path.stem for path in PUBLISHED.glob("*.toml")}


@pytest.fixture
def local(tmp_path, gsm8k_models, monkeypatch):
    """A folder of models and data under the names that the recipes have."""
    folder = tmp_path / "local"
    for name, like in (("0.5B", "small"), ("1.5B", "large")):
        shutil.copytree(gsm8k_models / f"gsm8k-{like}", folder / f"Qwen2.5-{name}-Instruct")
    shutil.copytree(gsm8k_models / "gsm8k-small", folder / "Qwen3-0.6B-Reverse-Text-SFT")
    row = {"question": "1 + {}?", "answer": "so\n#### {}", "prompt": "text {}"}

    def load_dataset(name, config, *, split):
        assert Path(name).parent == folder
        assert not config
        return [{key: text.format(i) for key, text in row.items()} for i in range(10)]

    monkeypatch.setitem(sys.modules, "datasets", stand_in_datasets.stand_in(load_dataset))
    return folder


PHASES = [
    {"round": 0, "node": "small", "name": "write", "used": {"tokens_per_s": 1.0}},
    {"round": 1, "node": "small", "name": "write", "used":
        {"tokens_per_s": 3210.4, "share_of_ceiling": 0.051, "memory_share": 0.4}},
    {"round": 1, "node": "small", "name": "grade", "used": None},
    {"round": 1, "node": "small", "name": "learn", "used":
        {"tokens_per_s": 999.6, "share_of_ceiling": 0.25, "memory_share": None}},
]  # fmt: skip


def test_all_steps_run_are_skipped_when_done_and_go_on_when_begun(
    local, tmp_path, potluck_says, monkeypatch
):
    monkeypatch.chdir(gpu_day.ROOT)
    out, calls, more, work = tmp_path / "day", [], ["--set", "rounds=1"], gpu_day.Day.work

    def call(day, step, words, limit_s):
        calls.append((step.name, words[2] if words[0] == "-m" else "measure", "--resume" in words))
        if words[0] != "-m":
            assert Path(words[0]).is_file()
            (out / step.name).mkdir()
            (out / step.name / "real-round.json").write_text(json.dumps({"phases": PHASES}))
            return
        is_begun = step.name == "grpo" and words[2] == "run"
        code, _, complaint = potluck_says(*words[2:], *(more if is_begun else ()))
        assert code == 0, complaint

    like_another = ("small-groups", "small-fewer", "large-groups")  # of the recipe of large-fewer
    monkeypatch.setattr(gpu_day.Day, "call", call)
    monkeypatch.setattr(
        gpu_day.Day, "work", lambda day, step: step.name in like_another or work(day, step)
    )
    arguments = ["--rehearse", "--local", str(local), "--out", str(out)]
    gpu_day.main(arguments)
    grpo = [("grpo", "run"), ("grpo", "evaluate")]
    assert [call[:2] for call in calls] == [
        *grpo, ("sizes", "run"), *[("sizes", "evaluate")] * 2, ("large-fewer", "run"),
        ("large-fewer", "evaluate"), ("reverse-text", "run"), ("throughput", "measure"),
    ]  # fmt: skip
    assert not any(resumed for *_, resumed in calls)
    assert " | 1 | strict .000 " in (out / "table.md").read_text()

    calls.clear()
    more.clear()  # one round was asked for and two are wanted: as a run that was stopped
    gpu_day.main(arguments)
    assert calls == [(*grpo[0], True), (*grpo[1], False)]

    calls.clear()
    gpu_day.main(arguments)
    assert calls == []
    table = [line.split(" | ") for line in (out / "table.md").read_text().splitlines()]
    assert [cells[1] for cells in table[2:10]] == ["2"] * 3 + ["0"] * 3 + ["2"] * 2
    assert re.fullmatch(r"strict \.\d+ \[.*\], lenient \.\d+ \[.*\], [0-4] cut off", table[2][2])
    assert table[2][3].startswith("strict .481")
    assert table[9][2] == "reward .000 to .000"
    assert table[10][2] == (
        "small write: 3,210 tokens/s, 5.1% of the arithmetic, 40.0% of the memory's bandwidth"
    )
    assert table[11][2] == "small learn: 1,000 tokens/s, 25.0% of the arithmetic"
    assert [cells[0] for cells in table[12:]] == ["| sizes large - large-fewer"]


def test_both_grades_come_out_of_the_number_that_they_were_put_into(tmp_path):
    file = tmp_path / "graded.json"
    rows = [{"A": {"greedy_reward": reward}} for reward in (1.25, 1.0, 0.25, 0.0)]
    file.write_text(json.dumps({"splits": [{"per_problem": rows}]}))
    assert gpu_table.grades(file) == {"strict": [1, 1, 0, 0], "lenient": [1, 0, 1, 0]}


def test_a_run_that_takes_too_long_is_asked_to_stop_and_has_not_failed(tmp_path, monkeypatch):
    child = mock.Mock()
    child.wait.side_effect = [subprocess.TimeoutExpired("child", 1.0), 130]
    monkeypatch.setattr(gpu_day.subprocess, "Popen", lambda *_, **__: child)
    day, step = gpu_day.Day(gpu_day.parse(["--out", str(tmp_path)])), gpu_day.STEPS[0]
    day.call(step, ["-m", "potluck"], 1.0)
    child.send_signal.assert_called_once_with(gpu_day.signal.SIGINT)
    assert day.failed == {}
    monkeypatch.undo()  # what failed is in the table by its last line
    day.call(step, ["-c", "print('first'); print('no such model'); raise SystemExit(2)"], 60.0)
    line = gpu_table.table(tmp_path, gpu_day.STEPS, day.failed).splitlines()[2]
    assert line.startswith("| grpo | 0 | failed: no such model |")


def test_without_time_nothing_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_day.Day, "call", lambda *_: pytest.fail("it began"))
    gpu_day.main(["--out", str(tmp_path), "--minutes", "0"])
    assert (tmp_path / "table.md").read_text().count("not begun") == len(gpu_day.STEPS)
