"""Swarms of small real nodes, and what must hold of their folders whatever was done to them:
nothing is learned twice, nothing that was kept is lost.
"""

from collections import Counter

import tiny
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
