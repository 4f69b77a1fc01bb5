"""What grows with the number of nodes on one machine: time of a round, bytes, memory.

    python benchmarks/swarm.py [--nodes 2 4 8 16] [--rounds 20] [--json FILE]

Each is a real run, a process for each node, as ``potluck run`` starts them: models of half a
million weights, 16 problems x 4 completions a round, whoever writes them. So the batch that a
node learns from does not grow with the nodes; what it writes itself shrinks.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from potluck.config import from_tree
from potluck.launch.local_swarm import run_local_swarm


def recipe(nodes, rounds):
    node = {"model": "builtin:digits-small", "learning_rate": 1e-4}
    return from_tree(
        {
            "name": f"nodes-{nodes}",
            "rounds": rounds,
            "plan": "vertical",
            "objective": {"method": "f-tis"},
            "problems_per_round": 16,
            "group_size": 4,
            "threads": 1,
            "deadline_s": 120,
            "checkpoint_every": 0,
            "sampling": {"max_new_tokens": 48, "max_total_tokens": 96},
            "evaluation": {"every": 0, "problems": 0, "out_of_distribution": 0},
            "swarm": {"gather_s": 300},
            "node": {f"n{i:02d}": node for i in range(nodes)},
        }
    )


class Clock:
    """When each round was done by the last of its nodes."""

    def __init__(self):
        self.done_s, self.said = {}, []

    def phase(self, *_): ...

    def evaluated(self, *_): ...

    def round_done(self, node, metrics):
        self.done_s[metrics["round"]] = time.monotonic()

    def say(self, text):
        self.said.append(text)


def measure(nodes, rounds, answer):
    """Of one run, in a process of its own: its children are those of this run only."""
    config, clock = recipe(nodes, rounds), Clock()
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        ended = run_local_swarm(config, Path(folder) / "run", resume=False, display=clock)
        texts = [
            (Path(folder) / "run" / name / "metrics.jsonl").read_text() for name in config.node
        ]
    metrics = [json.loads(line) for text in texts for line in text.splitlines()]
    done = [clock.done_s[round] for round in sorted(clock.done_s)]
    own = [sum(m["seconds"].values()) for m in metrics]
    answer.put(
        {
            "nodes": nodes,
            "codes": sorted(set(ended.codes.values())),
            "rounds done by all": sum(len(t.splitlines()) == rounds for t in texts),
            "first round after s": done[0] - begun,
            "round s": statistics.median(b - a for a, b in pairwise(done)),
            **{
                f"{phase} s": statistics.median(m["seconds"][phase] for m in metrics)
                for phase in ("write", "learn", "wait", "exchange")
            },
            "of a node s": statistics.median(own),
            "missing": sum(len(m["missing"]) for m in metrics),
            "sent bytes": statistics.median(m["sent_bytes"] for m in metrics),
            "received bytes": statistics.median(m["received_bytes"] for m in metrics),
            "bytes a token": statistics.median(m["sent_bytes_per_token"] for m in metrics),
            "largest node MiB": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
        }
    )


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--nodes", type=int, nargs="+", default=[2, 4, 8, 16])
    ask.add_argument("--rounds", type=int, default=20)
    ask.add_argument("--json", type=Path)
    asked = ask.parse_args()
    found = []
    for nodes in asked.nodes:
        answer = multiprocessing.get_context("spawn").Queue()
        process = multiprocessing.get_context("spawn").Process(
            target=measure, args=(nodes, asked.rounds, answer)
        )
        process.start()
        found.append(answer.get(timeout=3600))
        process.join()
        print(json.dumps(found[-1]), flush=True)
    columns = [key for key in found[0] if key != "codes"]
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in found:
        cells = (row[key] for key in columns)
        print("| " + " | ".join(f"{c:.3g}" if c < 100 else f"{c:,.0f}" for c in cells) + " |")
    if asked.json:
        asked.json.write_text(json.dumps({"cores": os.cpu_count(), "rows": found}, indent=1))


if __name__ == "__main__":
    main()
