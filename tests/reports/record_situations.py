"""Records what nodes report in eight situations, for ``test_situations.py``: real nodes, processes
that are slowed, paused and killed. ``python tests/reports/record_situations.py [NAME ...]`` writes
``tests/golden/situations.json`` again; it takes some minutes. The name of a node is its role."""

import json
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from faults.exchanges import free_ports
from faults.swarm import Swarm
from potluck.config import from_tree

GOLDEN = Path(__file__).parents[1] / "golden" / "situations.json"
FIELDS = (
    *(
        "round",
        "missing",
        "absent",
        "heard",
        "finished",
        "refused",
        "unreadable",
        "late",
        "sources",
    ),
    *("own_reward_mean", "own_cut_share", "entropy", "own_length_mean"),
)
OF_AUTHORS = (
    *("completions", "tokens", "success_weight", "silenced_share", "likelihood_positive"),
    *("gradient_share", "tested_habit", "habit_gain", "habit_gain_error"),
)


def recipe(rounds, *overrides, **models):
    tree = {
        "name": "situation", "rounds": rounds, "problems_per_round": 6, "group_size": 6,
        "deadline_s": 60, "threads": 1, "task": {"name": "digits"},
        "sampling": {"max_new_tokens": 48, "max_total_tokens": 96},
        "evaluation": {"problems": 2, "out_of_distribution": 0}, "swarm": {"alone": "continue"},
        "node": {name: {"model": f"builtin:{model}"} for name, model in models.items()},
    }  # fmt: skip
    return from_tree(tree, overrides)


def slowed(swarm, name, *, stopped_s, going_s, until):
    """Let a process go on for a part of the time only."""
    while not until():
        swarm.signal(name, signal.SIGSTOP)
        time.sleep(stopped_s)
        swarm.signal(name, signal.SIGCONT)
        time.sleep(going_s)


def together(folder, config, *, watch=lambda swarm: None, names=(), more=()):
    with Swarm(config, folder, more=more) as swarm:
        swarm.start(*names)
        watch(swarm)
        swarm.wait()
        return {name: swarm.metrics(name) for name in names or config.node}


def elsewhere(folder, *names):
    """Words for a node that has its own folder, and so a key that no roster knows."""
    addresses = json.loads((folder / "_swarm" / "addresses.json").read_text())
    calls = [word for name in names for word in ("--connect", addresses[name])]
    (port,) = free_ports(1)
    return ["--out", str(folder / "elsewhere"), "--listen", f"tcp/127.0.0.1:{port}", *calls]


def slow(folder):
    config = recipe(14, "deadline_s=2", slow="digits-large", quick="digits-small")

    def watch(swarm):
        swarm.wait_until(lambda: swarm.round("slow") >= 0, "it has begun")
        going = {"stopped_s": 2.5, "going_s": 1.0}
        slowed(swarm, "slow", **going, until=lambda: swarm.round("quick") >= 13)

    return together(folder, config, watch=watch)


def absent(folder):
    models = {"here": "digits-small", "there": "digits-large", "gone": "digits-small"}
    config = recipe(9, "deadline_s=4", "swarm.gather_s=4", **models)
    return together(folder, config, names=("here", "there"))


def foreign(folder):
    return together(folder, recipe(9, usual="digits-small", terse="digits-terse"))


def stranger(folder):
    config = recipe(
        24, "swarm.open=true", "swarm.stranger_share=0.3", one="digits-small", two="digits-large"
    )
    with Swarm(config, folder) as swarm:
        swarm.start()
        guest = ["--model", "builtin:digits-terse", *elsewhere(folder, "one", "two")]
        swarm.running["guest"] = swarm._start("guest", guest, {})
        swarm.wait()
        found = {name: swarm.metrics(name) for name in ("one", "two")}
        assert swarm.running["guest"].returncode == 0, swarm.log("guest")
        text = (folder / "elsewhere" / "guest" / "metrics.jsonl").read_text()
        return found | {"guest": [json.loads(line) for line in text.splitlines()]}


def killed(folder):
    def watch(swarm):
        swarm.wait_until(lambda: swarm.round("dies") >= 2, "three rounds are done")
        swarm.signal("dies")

    models = {"dies": "digits-large", "stays": "digits-small"}
    return together(folder, recipe(14, "deadline_s=5", **models), watch=watch)


def finished(folder):
    config = recipe(24, "pace=free", quick="digits-small", slow="digits-large")

    def watch(swarm):
        swarm.wait_until(lambda: swarm.round("slow") >= 0, "it has begun")
        ended = {"stopped_s": 1.5, "going_s": 0.7}
        slowed(swarm, "slow", **ended, until=lambda: swarm.round("quick") >= 23)

    return together(folder, config, watch=watch)


def paused(folder):
    config = recipe(24, "deadline_s=3", paused="digits-large", going="digits-small")

    def watch(swarm):
        swarm.wait_until(lambda: swarm.round("paused") >= 2, "three rounds are done")
        swarm.signal("paused", signal.SIGSTOP)
        swarm.wait_until(lambda: swarm.round("going") >= 12, "it was silent for ten rounds")
        swarm.signal("paused", signal.SIGCONT)

    return together(folder, config, watch=watch)


def refused(folder):
    config = recipe(9, "deadline_s=4", "swarm.gather_s=4", other="digits-large", own="digits-small")
    with Swarm(config, folder) as swarm:
        swarm.start("own")
        swarm.running["other"] = swarm._start("other", elsewhere(folder, "own"), {})
        swarm.wait()
        return {"own": swarm.metrics("own")}


def trimmed(line):
    kept = {key: line[key] for key in FIELDS if line.get(key) not in (None, {}, [])}
    authors = line.get("sources", {}).items()
    kept["sources"] = {
        author: {key: report[key] for key in OF_AUTHORS if report.get(key) is not None}
        for author, report in authors
    }
    return kept


def main(names):
    kept = json.loads(GOLDEN.read_text()) if GOLDEN.is_file() else {}
    situations = slow, absent, foreign, stranger, killed, finished, paused, refused
    for situation in situations:
        if not names or situation.__name__ in names:
            with tempfile.TemporaryDirectory() as folder:
                started_s = time.monotonic()
                found = situation(Path(folder) / "run")
            kept[situation.__name__] = {
                name: [trimmed(line) for line in lines] for name, lines in found.items()
            }
            print(situation.__name__, f"{time.monotonic() - started_s:.0f} s", flush=True)
            lines = [f" {json.dumps(key)}: {json.dumps(kept[key])}" for key in sorted(kept)]
            GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    assert threading.current_thread() is threading.main_thread()
    main(sys.argv[1:])
