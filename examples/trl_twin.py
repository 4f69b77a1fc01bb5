"""The twin of ``trl_grpo.py`` with Potluck: the same model, data, rewards and settings.

    python examples/trl_twin.py            # alone, as TRL trains it: half a minute of one CPU core
    python examples/trl_twin.py --partner  # a second, wider model joins: each writes half

Both scripts draw other samples, so their curves are alike and not equal.
"""

import json
import sys
import tempfile
from pathlib import Path

import potluck
import trl_grpo


def main(folder, *, partner=False):
    rows = Path(folder) / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in trl_grpo.make_rows()))
    node = {"learning_rate": trl_grpo.RATE, "lr_schedule": "constant", "gradient_clip_norm": 1.0}
    recipe = {
        "name": "twin",
        "seed": 0,
        "threads": 1,
        "rounds": trl_grpo.STEPS,  # max_steps
        "group_size": trl_grpo.GENERATIONS,  # num_generations
        "problems_per_round": trl_grpo.PROBLEMS,  # gradient_accumulation_steps
        "task": {"name": "jsonl", "path": str(rows), "question": "prompt", "answer": "",
                 "tags": False, "held_out": 1},
        "sampling": {"temperature": 1.0, "max_new_tokens": trl_grpo.LONGEST},
        "objective": {"method": "lws", "beta": 0.0, "clip_epsilon": 0.2, "loss_type": "grpo"},
        "evaluation": {"every": 0, "problems": 0, "out_of_distribution": 0},
        "node": {"tiny": {"model": trl_grpo.make_model(Path(folder) / "model"), **node}},
    }  # fmt: skip
    if partner:
        wider = trl_grpo.make_model(Path(folder) / "wider", seed=1, width=48)
        recipe["node"]["wider"] = {"model": wider, **node}
    run = potluck.run(recipe, f"{folder}/twin", rewards=[trl_grpo.vowels, (trl_grpo.brief, 0.01)])
    frame = run.frame()
    return frame[frame.node == "tiny"]["reward/own"].tolist()


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--partner"]
    rewards = main(words[0] if words else tempfile.mkdtemp(), partner="--partner" in sys.argv)
    print("mean reward:", *(f"{reward:.2f}" for reward in [*rewards[::6], rewards[-1]]))
