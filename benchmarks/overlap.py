"""Measure the wall time of a round whose server writes the next one meanwhile (`overlap = true`).

Runs with and without overlap take turns, on one server and with the same rounds. Between the first
and the last round, which have nothing to overlap with, a round should last as long as the longer
of writing and learning, and what it exchanges; both are taken from the runs without overlap.

    python benchmarks/overlap.py [--quick]

The server is tests/stand_in_server.py in a process of its own. It sleeps while it writes, and the
learner sleeps while it learns, as what works on a device of its own waits for it; a little is
written and learned in fact. So this measures what the loop costs, on a machine that is busy too.
With POTLUCK_VLLM_URL the server is a real vLLM, as docs/vllm.md starts it, whose model folder is on
this machine, and nothing sleeps; then both want a core of their own: `taskset -c 1` before `vllm
serve` (with VLLM_CPU_OMP_THREADS_BIND=1), `taskset -c 0` before this.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import harness
from harness import Row

from potluck.config import RunConfig, from_tree
from potluck.launch.in_process import run
from potluck.model.loading import BUILT_IN
from potluck.node.learning.learner import Learner
from potluck.reports.events import Event, RoundDone

MODEL = str(BUILT_IN / "digits-large")
REAL = os.environ.get("POTLUCK_VLLM_URL")
PHASES = ("write", "learn", "exchange", "wait")


def measure(quick: bool) -> tuple[list[Row], object]:
    rounds, turns, pause_s = (4, 1, 0.5) if quick else (6, 4, 4.0)
    if not REAL:
        learn_slowly(pause_s)
    seconds: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    with server(pause_s) as (url, model), tempfile.TemporaryDirectory() as place:
        for turn in range(turns + 1):
            for overlap in (False, True) if turn % 2 else (True, False):
                folder = Path(place) / f"{turn}-{overlap}"
                told = medians(recipe(url, model, rounds, overlap=overlap), folder)
                if turn:  # the first warms up
                    seconds[overlap].append(told)
                harness.say(f"turn {turn}/{turns}, overlap {overlap}: {told['round']:.2f} s")
    harness.say("")
    shortest = [
        max(alone["write"], alone["learn"]) + alone["exchange"] + alone["wait"]
        for alone in seconds[False]
    ]
    rows = []
    for name in ("write", "learn", "round"):
        rows.append(row(f"without overlap: {name}", [each[name] for each in seconds[False]]))
    with_overlap = [each["round"] for each in seconds[True]]
    rows.append(row("with overlap: round", with_overlap))
    middle, low, high = harness.ratio(with_overlap, shortest)
    what = "with overlap: round, of the longer of writing and learning, and exchange"
    rows.append(Row(what, middle, low, high, at_most=1.1))
    middle, low, high = harness.ratio(with_overlap, [each["round"] for each in seconds[False]])
    rows.append(Row("round with overlap, of one without", middle, low, high))
    return rows, {
        "without": seconds[False],
        "with": seconds[True],
        "server": "vLLM" if REAL else "stand-in that sleeps",
    }


def row(what: str, seconds: list[float]) -> Row:
    return Row(what, statistics.median(seconds), min(seconds), max(seconds), unit=" s")


class Times:
    """Display that notes when each round ended, and its phases."""

    def __init__(self) -> None:
        self.ends_s: list[float] = []
        self.phases: list[dict[str, float]] = []

    def show(self, event: Event) -> None:
        if isinstance(event, RoundDone):
            self.ends_s.append(time.perf_counter())
            self.phases.append({phase: event.report.seconds[phase] for phase in PHASES})


def medians(config: RunConfig, folder: Path) -> dict[str, float]:
    """The medians of a round's wall time and phases, those in the middle of a run."""
    times = Times()
    run(config, folder, display=times)
    walls = [b - a for a, b in zip(times.ends_s, times.ends_s[1:], strict=False)][:-1]
    middle = {p: statistics.median(each[p] for each in times.phases[1:-1]) for p in PHASES}
    return middle | {"round": statistics.median(walls)}


def recipe(url: str, model: str, rounds: int, *, overlap: bool) -> RunConfig:
    engine = {"name": "vllm", "url": url, "model": "served", "overlap": overlap}
    tree = {
        "name": "overlap",
        "rounds": rounds,
        "plan": "vertical",
        "objective": {"method": "f-tis"},
        "threads": 1,
        "problems_per_round": 32 if REAL else 4,
        "group_size": 16 if REAL else 4,
        # Paid by a hash, as the time to learn is not to depend on how good the model is.
        "task": {"name": "digits", "reward": "hash"},
        "sampling": {"max_new_tokens": 48 if REAL else 4, "max_total_tokens": 96},
        "evaluation": {"every": 0, "problems": 1, "out_of_distribution": 0},
        "node": {"large": {"model": model, "learning_rate": 1e-5, "engine": engine}},
    }
    return from_tree(tree)


def learn_slowly(seconds: float) -> None:
    learn = Learner.learn

    def slowly(self: Learner, *args: object, **kwargs: object) -> object:
        time.sleep(seconds)
        return learn(self, *args, **kwargs)

    Learner.learn = slowly


@contextmanager
def server(pause_s: float) -> Iterator[tuple[str, str]]:
    """Yield a server's URL and the folder of its model."""
    if REAL:
        with urllib.request.urlopen(REAL + "/v1/models", timeout=30) as answer:
            yield REAL, json.loads(answer.read())["data"][0]["root"]
        return
    command = [sys.executable, __file__, "--serve", str(pause_s)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as its:
        assert its.stdin
        assert its.stdout
        try:
            yield its.stdout.readline().strip(), MODEL
        finally:
            its.stdin.close()  # which ends it


def serve(pause_s: float) -> None:
    """Be the server, until the standard input is closed."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import torch

    from stand_in_server import stand_in

    torch.set_num_threads(1)
    with stand_in(MODEL, name="served", max_model_len=128) as made:
        made.pause_s = pause_s
        print(made.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(float(sys.argv[2]))
    else:
        harness.run("overlap", measure, model="digits-large, 0.8M")
