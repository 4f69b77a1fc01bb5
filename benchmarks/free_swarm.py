"""The short form of ``pace_simulation.py``: small swarms at their own pace.

python benchmarks/free_swarm.py      (part of make bench; --quick: smaller ones)
"""

import harness
from harness import Row
from pace_simulation import measure

TARGETS = {"others' used per own": 2.0, "joint": 0.6, "of fetched used": 0.6}


def measure_some(quick: bool) -> tuple[list[Row], object]:
    raw = [row for nodes in ((8,) if quick else (8, 64)) for row in measure(nodes, 12)]
    rows = []
    for nodes in dict.fromkeys(row["nodes"] for row in raw):
        *fifths, every = [row for row in raw if row["nodes"] == nodes]
        for key, at_least in TARGETS.items():
            values = [row[key] for row in fifths]
            what = f"{nodes} nodes: {key}"
            rows.append(Row(what, every[key], min(values), max(values), "", at_least=at_least))
    return rows, raw


if __name__ == "__main__":
    harness.run("free_swarm", measure_some, model="none: simulated")
