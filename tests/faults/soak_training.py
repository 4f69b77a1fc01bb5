"""Fifty rounds with a random kill and rejoin every five, against five undisturbed runs.

    python tests/faults/soak_training.py FOLDER [--seeds 5] [--rounds 50] [--nodes 4]

Prints what survivors lost, whether the run finished, and the final accuracy beside the range
of undisturbed runs of seeds 0, 1, ...; the disturbed one has seed 0. Needs minutes.
"""

import argparse
import json
import random
import signal
import time
from pathlib import Path

from faults.swarm import Swarm
from potluck.config import from_tree

NAMES = ("east", "north", "south", "west", "up", "down", "left", "right")
MODELS = ("builtin:digits-small", "builtin:digits-terse", "builtin:digits-large")


def recipe(seed, rounds, nodes):
    return from_tree(
        {
            "name": "soak",
            "seed": seed,
            "rounds": rounds,
            "problems_per_round": 24,
            "group_size": 12,
            "threads": 1,
            "deadline_s": 120,
            "checkpoint_every": 5,
            "sampling": {"max_new_tokens": 48, "max_total_tokens": 96},
            "evaluation": {"every": 0, "problems": 200, "out_of_distribution": 0},
            "node": {
                name: {"model": MODELS[i % 2], "learning_rate": 1e-4}
                for i, name in enumerate(NAMES[:nodes])
            },
        }
    )


def undisturbed(config, folder):
    with Swarm(config, folder) as swarm:
        swarm.start()
        swarm.wait(patience_s=1800)
        return finals(swarm)


def disturbed(config, folder, *, every, generator):
    """Kills one node in the middle of every fifth round, and starts it again at once."""
    kills, started = [], time.monotonic()
    with Swarm(config, folder) as swarm:
        swarm.start()
        # Who is killed in the last rounds comes back to nobody.
        for at in range(every, config.rounds - 2 * every + 1, every):
            swarm.wait_until(lambda at=at: furthest(swarm) >= at - 1, f"round {at}")
            there = [n for n in config.node if swarm.round(n) >= furthest(swarm) - 1]
            victim = generator.choice(there)
            time.sleep(generator.uniform(0, 0.5))  # somewhere in the round
            swarm.signal(victim, signal.SIGKILL)
            swarm.start(victim, resume=True)
            others = [name for name in config.node if name != victim]
            kills.append((victim, max(swarm.round(name) for name in others) + 1))
            print(f"{time.monotonic() - started:6.1f} s  killed {victim} in round {kills[-1][1]}")
        codes = swarm.wait(patience_s=1800)
        return finals(swarm), report(swarm, kills), codes


def furthest(swarm):
    return max(swarm.round(name) for name in swarm.config.node)


def finals(swarm):
    return {name: swarm.evaluations(name)[-1]["validation"] for name in swarm.config.node}


def report(swarm, kills):
    """Of each round of each node that no other node's kill explains, what was missing."""
    metrics = {name: {m["round"]: m for m in swarm.metrics(name)} for name in swarm.config.node}
    lost, used_after = [], []
    for name, lines in metrics.items():
        for round, line in lines.items():
            for absent in line["missing"]:
                if round not in away(absent, kills, metrics):
                    lost.append((name, round, absent))
    for victim, killed_in in kills:
        after = [r for r in metrics[victim] if r > killed_in]
        if not after:
            continue
        back = min(after)
        other = next(name for name in metrics if name != victim)
        used = [r for r, m in metrics[other].items() if r >= back and victim in m["sources"]]
        used_after.append((victim, killed_in, back, min(used) - back if used else None))
    rounds = {name: len(lines) for name, lines in metrics.items()}
    return {"rounds": rounds, "lost by survivors": lost, "used again after": used_after}


def away(name, kills, metrics):
    """Rounds in which a node was killed or not yet back: from the one it was killed in to the
    first that it did itself again (what it wrote in between came late)."""
    rounds = set()
    for victim, killed_in in kills:
        if victim == name:
            back = min((r for r in metrics[name] if r > killed_in + 1), default=10**9)
            rounds |= set(range(killed_in - 1, min(back, 10**6) + 1))
    return rounds


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("folder", type=Path)
    ask.add_argument("--seeds", type=int, default=5)
    ask.add_argument("--rounds", type=int, default=50)
    ask.add_argument("--nodes", type=int, default=4)
    ask.add_argument("--every", type=int, default=5)
    asked = ask.parse_args()
    begun = time.monotonic()
    last, told, codes = disturbed(
        recipe(0, asked.rounds, asked.nodes),
        asked.folder / "disturbed",
        every=asked.every,
        generator=random.Random(0),
    )
    print(json.dumps(told, indent=1), codes, f"{time.monotonic() - begun:.0f} s")
    print("disturbed  ", {name: f"{value:.3f}" for name, value in last.items()})
    calm = []
    for seed in range(asked.seeds):
        calm.append(undisturbed(recipe(seed, asked.rounds, asked.nodes), asked.folder / f"{seed}"))
        print(f"seed {seed}     ", {name: f"{value:.3f}" for name, value in calm[-1].items()})
    means = [sum(one.values()) / len(one) for one in calm]
    mean = sum(last.values()) / len(last)
    inside = min(means) <= mean <= max(means)
    print(
        f"mean of the nodes: disturbed {mean:.3f}, undisturbed {min(means):.3f} to "
        f"{max(means):.3f}: {'inside' if inside else 'OUTSIDE'}"
    )


if __name__ == "__main__":
    main()
