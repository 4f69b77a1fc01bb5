"""Runs recipes/published and the throughput in order of worth: 40 minutes of one GPU, one table.

    make gpu-day                            or: python scripts/gpu_day.py
    make gpu-day ARGS=--dry                 the order and the minutes; nothing starts
    make gpu-day ARGS="--local FOLDER"      models and data from FOLDER/NAME instead of the Hub

Called again it skips what has finished and goes on with what has begun. The minutes are estimates
for an H100 that no run has confirmed: a run that needs more is stopped, saved, and graded as it is.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpu_table import Step, file_of, lines_of, table
from potluck.config import RunConfig, load

ROOT = Path(__file__).parents[1]
REWARDS = "recipes/published/rewards.py"
BOTH = f"reward=[{{function='{REWARDS}:strict'}}, {{function='{REWARDS}:lenient', weight=0.25}}]"
"""Both grades in one number: 1.25, 1, .25 or 0."""
STOP_S = 180.0
"""Longest wait for a run that was asked to stop: it ends its round and saves."""
SMALL = ("rounds=2", "problems_per_round=2", "group_size=4", "sampling.max_new_tokens=12")
"""Keys of a rehearsal, and of its grading: problems, tokens, and the scale of the throughput."""
SMALL_GRADED, GRADED = ("4", "12", "tiny"), ("", "1024", "sizes")

HALF, FEWER = "gsm8k-half", ("problems_per_round=16", "group_size=8")
LARGE = "node.alone.model=Qwen/Qwen2.5-1.5B-Instruct"
NEW = "nobody has published it"
STEPS = (
    Step(
        "grpo", 12, "strict .481 (verl, round 50)", "512 new tokens instead of 1,024; see recipe",
        "gsm8k-grpo", ("rounds=50", "sampling.max_new_tokens=512"), 1319,
    ),
    Step("sizes", 7, "unknown", NEW, "gsm8k-sizes", (), 512),
    Step("small-groups", 3, "unknown", NEW, HALF, (), 512),
    Step("small-fewer", 3, "unknown", NEW, HALF, FEWER, 512),
    Step("large-groups", 4, "unknown", NEW, HALF, (LARGE,), 512),
    Step("large-fewer", 4, "unknown", NEW, HALF, (LARGE, *FEWER), 512),
    Step("reverse-text", 3, "reward .14 to .79 (prime-rl)", "see recipe", "reverse-text"),
    Step("throughput", 3, "below 100 %", "random weights: no answer ends early"),
)  # fmt: skip


class Day:
    """The runs under one folder, and the time that is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.out: Path = options.out.resolve()
        self.local: Path | None = options.local and options.local.resolve()
        self.end = time.monotonic() + 60 * options.minutes
        self.small: bool = options.rehearse
        self.failed: dict[str, str] = {}

    def sets(self, step: Step) -> list[str]:
        """List the keys that a step changes in its recipe."""
        sets = [*step.sets, "evaluation.problems=0"]  # graded by itself, by both grades
        if self.local:
            config = load(ROOT / step.path, sets)
            names = {f"node.{name}.model": node.model for name, node in config.node.items()}
            names["task.dataset"] = config.task.hub_name
            sets += [f"{key}={self.local / Path(name).name}" for key, name in names.items()]
            sets.append('task.subset=""')
        return [*sets, *(SMALL if self.small else ())]

    def work(self, step: Step) -> None:
        """Do what is left of a step, in the time that it has."""
        place, limit_s = self.out / step.name, min(60 * step.minutes, self.end - time.monotonic())
        problems, tokens, scale = SMALL_GRADED if self.small else GRADED
        if not step.recipe:
            if limit_s > 0 and not [*place.glob("*.json")]:
                words = ["--scale", scale, "--rounds", "2", "--out", str(place)]
                self.call(step, [str(ROOT / "benchmarks" / "real_round.py"), *words], limit_s)
            return
        sets = self.sets(step)
        config: RunConfig = load(ROOT / step.path, sets)
        done = {node: len(lines_of(self.out, step, node)) for node in config.node}
        if limit_s > 0 and min(done.values()) < config.rounds:
            for node in done:
                file_of(self.out, step, node).unlink(missing_ok=True)
            words = ["run", step.path, "--out", str(place), "--one-process", "--display", "none"]
            words += [word for key in sets for word in ("--set", key)] + ["--trust-code"]
            words += ["--resume"] * (place / "recipe.json").exists()
            self.call(step, ["-m", "potluck", *words], limit_s)
        for node in done:
            file = file_of(self.out, step, node)
            if step.graded and not file.exists() and lines_of(self.out, step, node):
                words = ["evaluate", str(place / node), "--split", "validation", "--set", BOTH]
                words += ["--problems", problems or str(step.graded), "--max-new-tokens", tokens]
                words += ["--dtype", "bfloat16", "--json", str(file), "--trust-code"]
                self.call(step, ["-m", "potluck", *words], 60 * step.minutes)

    def call(self, step: Step, words: Sequence[str], limit_s: float) -> None:
        """Run a program of Python; ask it to stop at the limit, and keep why it failed."""
        print(f"{step.name}: {' '.join(words[:3])} ...", flush=True)
        log = self.out / f"{step.name}.log"
        with log.open("a") as file:
            child = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=file, stderr=file)
            try:
                code = child.wait(limit_s)
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGINT)
                code = child.wait(STOP_S)
        if code not in (0, 130):
            self.failed[step.name] = [f"code {code}", *log.read_text().strip().splitlines()][-1]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-day"), help="folder of the runs")
    parser.add_argument("--minutes", type=float, default=40.0, help="time for what is left")
    parser.add_argument("--dry", action="store_true", help="print order and minutes, start nothing")
    parser.add_argument("--local", type=Path, help="folder of the models and data sets, by name")
    parser.add_argument("--rehearse", action="store_true", help="all of it, two rounds of 2 x 4")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    if options.dry:
        for step in STEPS:
            print(
                f"{step.minutes:3} min  {step.name:13} {step.recipe} {' '.join(step.sets)}".strip()
            )
        return print(f"{sum(step.minutes for step in STEPS):3} min")
    day = Day(options)
    day.out.mkdir(parents=True, exist_ok=True)
    for step in STEPS:
        day.work(step)
        text = table(day.out, STEPS, day.failed)  # after each: a card may go at any time
        (day.out / "table.md").write_text(f"{text}\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
