"""Faults of processes, clocks, memory and lines, one after the other, on swarms of small nodes.

    PYTHONPATH=src:tests python tests/faults/soak_faults.py FOLDER [--only kills memory] [--seed 0]

Prints a table: what was done, what was there afterwards. The exit code is 1 if a fault lost
something, left a node hanging, or ended one that it should not. Faults of packets want the rights
of root, or ``unshare -rn`` before the command; without them the table says "not tried".
"""

import argparse
import sys
import time
import traceback
from functools import partial
from pathlib import Path

from faults.line_faults import messages, older, packets, partition
from faults.process_faults import Row, clocks, kills, memory

FAULTS = {
    "kills": kills,
    "memory": memory,
    "clocks-together": partial(clocks, pace="together"),
    "clocks-free": partial(clocks, pace="free"),
    "packets-together": partial(packets, pace="together"),
    "packets-free": partial(packets, pace="free"),
    "partition-together": partial(partition, pace="together"),
    "partition-free": partial(partition, pace="free"),
    "messages": messages,
    "older-0.1": partial(older, release="0.1"),
    "older-0.2": partial(older, release="0.2"),
}


def table(rows):
    lines = ["| fault | done | seen | s |", "|---|---|---|---|"]
    lines += [f"| {r.fault} | {r.done} | {r.seen} | {r.seconds:.0f} |" for r in rows]
    return "\n".join(lines)


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("folder", type=Path)
    ask.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS))
    ask.add_argument("--seed", type=int, default=0)
    asked = ask.parse_args()
    rows, broken = [], 0
    for name in asked.only:
        begun_s = time.monotonic()
        try:
            row = FAULTS[name](asked.folder / name, asked.seed)
        except AssertionError as error:
            traceback.print_exc()
            row, broken = Row(name, "", f"BROKEN: {str(error)[:200]!r}"), broken + 1
        rows.append(Row(row.fault, row.done, row.seen, time.monotonic() - begun_s))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    print("\n" + table(rows))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
