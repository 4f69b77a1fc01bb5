"""GSM8K from end to end: the script, the recipe and the data that users have, cut to seconds."""

from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

import potluck
from launch.runs import lines
from potluck.launch.in_process import run
from potluck.node.storage import checkpoint

REPOSITORY = Path(__file__).parents[2]


def recipe(gsm8k_path, models, *overrides):
    small = ("rounds=1", "threads=1", "problems_per_round=4", "group_size=4",
             "sampling.max_new_tokens=12", "evaluation.problems=4")  # fmt: skip
    where = [f"task.path={gsm8k_path}"]
    where += [f"node.{name}.model={models}/gsm8k-{name}" for name in ("small", "large")]
    return potluck.load(REPOSITORY / "recipes" / "gsm8k-cpu.toml", [*small, *where, *overrides])


def test_untrained_models_earn_nothing_on_real_questions_and_leave_checkpoints_that_load(
    gsm8k_path, gsm8k_models, tmp_path
):
    run(recipe(gsm8k_path, gsm8k_models), tmp_path / "run")
    for node in ("small", "large"):
        (line,) = lines(tmp_path / "run", node)
        assert (line["reward_mean"], line["updates"]) == (0.0, 0)
        place = checkpoint.checkpoint_folder(tmp_path / "run" / node, 1)
        AutoModelForCausalLM.from_pretrained(place)
        assert "<|im_start|>" in AutoTokenizer.from_pretrained(place).get_vocab()
