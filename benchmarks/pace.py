"""Time lost to waiting, and time to learn, where one node is 4 and one 8 times as slow.

    python benchmarks/pace.py           # half an hour; a line for each seed and arm

Three nodes with a process each, as ``potluck run`` starts them, whose writing and learning last
longer by sleeping (``pace_node.py``). The slow two share a core, the fast one has another. Arms:
``together`` and ``pace = "free"``. An arm ends when the
slowest node has done ROUNDS rounds.

A node reaches a reward when the non-decreasing curve that fits the rewards of its own samples
best (isotonic regression, over its time, by completions) does. The target is 90 % of the mean of
the last five rounds of a run of the same recipe in which the node is by itself, and writes all.
Such a run is not slowed down: its seconds are multiplied, and divided by what they were too long.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean

import harness

from potluck.config import as_tree, from_tree
from potluck.launch import local_swarm

FACTORS = {"fast": 1, "slow4": 4, "slow8": 8}
ARMS = {
    "together": {},
    "free": {"pace": "free"},
}
ROUNDS, SEEDS, REACHED, MOST_S = 16, 5, 0.9, 900
LANES = 2
"""Seeds at a time, each with its fast node on the core of the other's slow ones."""
NODE = Path(__file__).with_name("pace_node.py")


def recipe(seed, rounds, names, **changes):
    """Rows are written 16 at a time, so that writing takes longer than learning, as it does with
    models that are not tiny."""
    node = {"model": "builtin:digits-small", "learning_rate": 1e-4, "sampling_rows": 16}
    return from_tree(
        {
            "name": "pace",
            "seed": seed,
            "rounds": rounds,
            "problems_per_round": 6,
            "group_size": 12,
            "plan": "horizontal",
            "threads": 1,
            "deadline_s": 120,
            "checkpoint_every": 0,
            "objective": {"method": "lws"},
            "sampling": {"max_new_tokens": 48, "max_total_tokens": 96},
            "evaluation": {"every": 0, "problems": 0, "out_of_distribution": 0},
            "swarm": {"gather_s": 300},
            "node": dict.fromkeys(names, node),
            **changes,
        }
    )


def started(seed, folder, name, factor, *words):
    core = (seed + (name != "fast")) % LANES % os.cpu_count()
    numbers = (factor, core, folder / f"{name}.lasted")
    command = [sys.executable, str(NODE), *map(str, numbers), *map(str, words)]
    quiet = {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0", "OMP_WAIT_POLICY": "passive"}
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    return subprocess.Popen(command, env={**os.environ, **quiet}, **silent)


def rounds_done(folder, name):
    file = folder / name / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def lines(folder, name):
    text = (folder / name / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def alone(seed, rounds, folder):
    """Lines of each node that is by itself, two at a time; and how much longer they lasted than
    they should have."""
    running = []
    for name in FACTORS:
        place = folder / f"{name}.json"
        place.write_text(json.dumps(as_tree(recipe(seed, rounds, [name]))))
        words = ("run", place, "--one-process", "--out", folder / f"by-itself-{name}")
        running.append(started(seed, folder, name, 1, *words, "--display", "none"))
        if len(running) == 2:
            running.pop(0).wait()
    for process in running:
        process.wait()
    return {n: lines(folder / f"by-itself-{n}", n) for n in FACTORS}, stretched(folder)


def stretched(folder):
    """How much longer each node's phases lasted than they should have, as others had the core."""
    lasted = {name: json.loads((folder / f"{name}.lasted").read_text()) for name in FACTORS}
    return {name: its["all"] / its["planned"] for name, its in lasted.items()}


def together(seed, rounds, folder, changes):
    """Lines of each node of one arm, with the time at which each was seen, as ``seen_s``; and how
    much longer its phases lasted than they should have."""
    most = rounds if changes.get("pace") != "free" else rounds * 2 * max(FACTORS.values())
    local_swarm.prepare_local_swarm(recipe(seed, most, FACTORS, **changes), folder)
    with ExitStack() as stack:
        nodes = {}
        for name, factor in FACTORS.items():
            words = ("join", folder / "_swarm" / "recipe.json", "--as", name, "--out", folder)
            words = (*words, "--all-here", "--display", "none")
            node = started(seed, folder, name, factor, *words)
            stack.callback(node.wait)
            stack.callback(node.kill)
            nodes[name] = node
        end_s, seen = time.monotonic() + MOST_S, {name: [] for name in FACTORS}
        while len(seen["slow8"]) < rounds and time.monotonic() < end_s:
            for name, times in seen.items():
                times += [time.monotonic()] * (rounds_done(folder, name) - len(times))
            if failed := [name for name, node in nodes.items() if node.poll()]:
                raise RuntimeError(f"{failed[0]} ended with {nodes[failed[0]].returncode}")
            time.sleep(0.2)
        found = {
            name: [
                row | {"seen_s": at}
                for row, at in zip(lines(folder, name), seen[name], strict=False)
            ]
            for name in FACTORS
        }
        for node in nodes.values():
            if node.poll() is None:
                node.send_signal(signal.SIGINT)
        for node in nodes.values():
            node.wait(60)
    return found, stretched(folder)


def isotonic(values, weights):
    """The non-decreasing values that are nearest: neighbours that fall are pooled."""
    pools = []
    for value, weight in zip(values, weights, strict=True):
        pools.append([value, weight, 1])
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (a, n, p), (b, m, q) = pools[-2:]
            pools[-2:] = [[(a * n + b * m) / (n + m), n + m, p + q]]
    return [value for value, _, count in pools for _ in range(count)]


def reached_s(rounds, name, target, factor=1):
    """Seconds of a node's rounds until its reward is at the target; None: it never is."""
    rows = [row for row in rounds if row["own_reward_mean"] is not None]
    weights = [row["sources"].get(name, {}).get("completions", 1) or 1 for row in rows]
    fit = isotonic([row["own_reward_mean"] for row in rows], weights)
    ends = itertools.accumulate(factor * sum(row["seconds"].values()) for row in rows)
    return next((end for end, value in zip(ends, fit, strict=True) if value >= target), None)


def figures(rounds):
    """What a node did with its time in one arm."""
    spent = {key: sum(row["seconds"][key] for row in rounds) for key in rounds[0]["seconds"]}
    whole = sum(spent.values())
    passed_s = rounds[-1].get("seen_s", 0.0) - rounds[0].get("seen_s", 0.0)
    stale = [row["staleness"] for row in rounds if row.get("staleness") is not None]
    return {
        "rounds": len(rounds),
        "seconds": whole,
        # Of the time from the first round's end to the last one's, by the clock of the parent.
        "accounted": passed_s and (whole - sum(rounds[0]["seconds"].values())) / passed_s,
        **{key: value / whole for key, value in spent.items()},
        "staleness": fmean(stale) if stale else None,
        "rewards": [row["own_reward_mean"] for row in rounds],
    }


def measure_alone(seed, rounds):
    with tempfile.TemporaryDirectory() as folder:
        own, longer = alone(seed, rounds, Path(folder))
    target = {n: REACHED * fmean(r["own_reward_mean"] for r in own[n][-5:]) for n in own}
    found = {}
    for name, factor in FACTORS.items():
        came_s = reached_s(own[name], name, target[name], factor / longer[name])
        its = {"stretched": longer[name], "target": target[name], "reached_s": came_s}
        found[name] = figures(own[name]) | its
    return found


def measure_seed(seed, rounds, arms):
    found = {"alone": measure_alone(seed, rounds)}
    target = {name: its["target"] for name, its in found["alone"].items()}
    for arm in arms:
        with tempfile.TemporaryDirectory() as folder:
            every, stretched = together(seed, rounds, Path(folder), ARMS[arm])
        found[arm] = {
            name: figures(every[name])
            | {
                "stretched": stretched[name],
                "reached_s": reached_s(every[name], name, target[name]),
            }
            for name in FACTORS
        }
        print(json.dumps({"seed": seed, arm: found[arm]}), file=sys.stderr, flush=True)
    return found


def rows_of(found):
    rows = []
    for arm, name in itertools.product(ARMS, FACTORS):
        waits = [100 * one[arm][name]["wait"] for one in found]
        target = {"at_most": 3.0} if (arm, name) == ("free", "fast") else {}
        rows.append(harness.mean_row(f"{arm}: {name} waits", waits, " %", **target))
    times = {
        (arm, name): [one[arm][name]["reached_s"] for one in found]
        for arm, name in itertools.product(["alone", *ARMS], FACTORS)
    }
    for (arm, name), its in times.items():
        if came := [seconds for seconds in its if seconds is not None]:
            of_all = f" ({len(came)} of {len(its)} seeds)" * (len(came) < len(its))
            rows.append(harness.mean_row(f"{arm}: {name} is at 90 %{of_all}", came, " s"))
    for arm, name in itertools.product([*ARMS][1:], FACTORS):
        pairs = zip(times[arm, name], times["together", name], strict=True)
        if gaps := [a - b for a, b in pairs if None not in (a, b)]:
            of_all = f" ({len(gaps)} of {len(found)} seeds)" * (len(gaps) < len(found))
            what = f"{arm} - together: {name} is at 90 %{of_all}"
            rows.append(harness.mean_row(what, gaps, " s"))
    return rows


def measure(quick):
    seeds, rounds = (1, 3) if quick else (SEEDS, ROUNDS)
    with ThreadPoolExecutor(LANES) as lanes:
        found = list(lanes.map(lambda seed: measure_seed(seed, rounds, ARMS), range(seeds)))
    return rows_of(found), {"factors": FACTORS, "seeds": found}


if __name__ == "__main__":
    harness.run(
        "pace-short" if "--quick" in sys.argv else "pace",
        measure,
        model="builtin:digits-small: .45M",
    )
