"""Kills, freezes and rejoins at random of three nodes, at their own pace or in step; nothing may be
learned twice, and nothing that was kept may be lost.

    python tests/faults/soak_nodes.py FOLDER [--pace free] [--events 100] [--rounds 1000] [--seed 0]

Prints what was done and seen, and ends with an AssertionError if something was wrong. Needs
minutes.
"""

import argparse
import random
import signal
import time
from collections import Counter
from pathlib import Path

import tiny
from faults.swarm import Swarm
from potluck.exchange import decode, decode_round
from potluck.exchange.keys.keys import without_signature
from potluck.files import unsealed

NAMES = ("east", "north", "south")
PROBLEMS, GROUP = 12, 12


def recipe(folder, rounds, pace, *overrides, names=NAMES):
    """Return a run of models of a few thousand weights, which are paid by a hash."""
    folder.mkdir(parents=True, exist_ok=True)
    models = {name: tiny.save(folder / name, seed) for seed, name in enumerate(names)}
    return tiny.recipe(
        models,
        f"rounds={rounds}",
        f"problems_per_round={PROBLEMS}",
        f"group_size={GROUP}",
        "checkpoint_every=4",
        "plan=horizontal",
        f"pace={pace}",
        "objective.method=lws",
        "swarm.gather_s=1",
        *overrides,
    )


AWAY_S, ROUNDS_BETWEEN = 5.0, 40
"""Longest absence; and most rounds, of all nodes together, from one event to the next."""


def disturb(swarm, events, generator, *, tell=lambda text: None):
    """Kill a node and start it again, or freeze it for a while, this many times, and wait until all
    are done; return what was done."""
    done, due = Counter(), []
    for number in range(events):
        until = rounds_of_all(swarm) + generator.randint(1, ROUNDS_BETWEEN)
        while rounds_of_all(swarm) < until or not (there := _running(swarm, due)):
            _come_back(swarm, due)
            if all(p.poll() == 0 for p in swarm.running.values()) and not due:
                tell(f"all nodes were done after {number} events")
                return done
            time.sleep(0.05)
        victim, kind = generator.choice(there), generator.choice(("kill", "kill", "freeze"))
        away_s = generator.uniform(0, AWAY_S)
        if kind == "kill":
            swarm.signal(victim, signal.SIGKILL)
        else:
            swarm.signal(victim, signal.SIGSTOP)
        due.append((time.monotonic() + away_s, victim, kind))
        done[kind] += 1
        tell(f"{number:3} {kind:6} {victim} after round {swarm.round(victim)}, for {away_s:.1f} s")
    while due or any(process.poll() is None for process in swarm.running.values()):
        _come_back(swarm, due)
        time.sleep(0.05)
    return done


def rounds_of_all(swarm):
    return sum(swarm.round(name) + 1 for name in swarm.config.node)


def _running(swarm, due):
    for name, process in swarm.running.items():
        assert process.poll() in (None, 0), f"{name} broke:\n{swarm.log(name)}"
    away = {victim for _, victim, _ in due}
    return [n for n, p in swarm.running.items() if n not in away and p.poll() is None]


def _come_back(swarm, due):
    for one in [each for each in due if each[0] <= time.monotonic()]:
        due.remove(one)
        _, victim, kind = one
        if kind == "kill":
            # Of one that was killed before it had a folder there is nothing to resume.
            swarm.start(victim, resume=(swarm.folder / victim).is_dir())
        else:
            swarm.signal(victim, signal.SIGCONT)


def require_all_whole(swarm, rounds, pace):
    """Raise AssertionError if something was learned twice, or lost that was kept, or left out, or
    written twice; return how many batches of others each node has learned from."""
    taken, batches = {}, {}
    for name in swarm.config.node:
        metrics = swarm.metrics(name)
        done = [line["round"] for line in metrics]
        require_all_done(swarm, name, done, rounds, pace)
        foreign, kept = Counter(), {}
        for round in done:
            file = swarm.folder / name / "rounds" / f"{round:06}.ptlk"
            arrived = decode_round(file.read_bytes(), run="tiny", round=round, node=name)
            messages = [decode(without_signature(data)) for data in arrived.messages]
            (own,) = (m for m in messages if m.sender == name)
            whole = [c for c in arrived.completions if c.author == name]
            assert (own.round, len(whole)) == (round, len(own.completions)), (name, round)
            assert whole, (name, round)
            foreign.update((m.sender, m.round) for m in messages if m.sender != name)
            kept[round] = {m.sender for m in messages}
            for message, data in zip(messages, arrived.messages, strict=True):
                same = batches.setdefault((message.sender, message.round), data)
                assert same == data, (name, message.sender, message.round, "is of two kinds")
        assert max(foreign.values(), default=1) == 1, (name, foreign.most_common(3))
        newest = Counter()
        for author, round in foreign:
            newest[author] = max(newest[author], round)
        if pace == "free":
            noted = unsealed((swarm.folder / name / "taken.json").read_bytes())
            assert noted == {**newest, name: rounds - 1}, name
            written = [line["round"] for line in swarm._lines(name, "written")]
            assert written == done, name
        for line in metrics:
            assert line["sources"].keys() <= kept[line["round"]], (name, line["round"])
        rows = Counter(
            (line["round"], line["author"], line["problem"], line["index"])
            for line in swarm._lines(name, "completions")
        )
        assert max(rows.values()) == 1, (name, rows.most_common(3))
        learned = sum(its["completions"] for m in metrics for its in m["sources"].values())
        assert rows.total() == learned, name
        taken[name] = foreign.total()
    require_written_once(batches)
    return taken


def require_all_done(swarm, name, done, rounds, pace):
    """Raise AssertionError unless a node did all rounds, but for those of which it told that the
    others were ahead: in step a node goes on where they are."""
    files = [int(file.stem) for file in sorted((swarm.folder / name / "rounds").iterdir())]
    assert files == done == sorted({*done}), name
    assert done[-1] == rounds - 1, name
    if skipped := rounds - len(done):
        assert pace == "together", (name, done)
        assert f"{len(done)} rounds were done, {skipped} skipped" in swarm.log(name), name


def require_written_once(batches):
    """Raise AssertionError if an author has sent the same completions as batches of two rounds."""
    told = {}
    for (author, round), data in batches.items():
        completions = decode(without_signature(data)).completions
        what = author, tuple((c.problem_id, c.index, c.token_T.tobytes()) for c in completions)
        assert told.setdefault(what, round) == round, (author, round, told[what])


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("folder", type=Path)
    ask.add_argument("--pace", choices=("free", "together"), default="free")
    ask.add_argument("--events", type=int, default=100)
    ask.add_argument("--rounds", type=int, default=1000)
    ask.add_argument("--seed", type=int, default=0)
    asked = ask.parse_args()
    begun = time.monotonic()
    config = recipe(asked.folder / "models", asked.rounds, asked.pace)
    with Swarm(config, asked.folder / "run") as swarm:
        swarm.start()

        def tell(text):
            print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

        generator = random.Random(asked.seed)
        done = disturb(swarm, asked.events, generator, tell=tell)
        codes = swarm.wait(patience_s=1800)
        assert set(codes.values()) == {0}, swarm.logs()
        taken = require_all_whole(swarm, asked.rounds, asked.pace)
        lines = [line for name in NAMES for line in swarm.metrics(name)]
    print(
        f"{dict(done)} in {time.monotonic() - begun:.0f} s; {len(lines)} rounds of three nodes, at "
        f"most {asked.rounds} each; batches of others learned from: {taken}"
    )


if __name__ == "__main__":
    main()
