"""Runs every benchmark, each in a process of its own, then says what was reached.

make bench                                (or: python benchmarks/all.py [--quick])
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

NAMES = (
    *("generation", "training", "memory", "overhead", "wire", "exchange"),
    *("pace-short", "free_swarm", "overlap", "turns"),
)
HERE = Path(__file__).parent
ONE_THREAD = {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0", "OMP_WAIT_POLICY": "passive"}
"""Set before torch is imported; the trainers that a benchmark starts inherit it."""


def main() -> int:
    start, failed = time.perf_counter(), []
    for name in NAMES:
        print(f"-- {name}", flush=True)
        file, _, short = name.partition("-")
        quick = {*sys.argv[1:], *(["--quick"] if short else [])}
        command = [sys.executable, str(HERE / f"{file}.py"), *quick]
        if subprocess.run(command, env={**os.environ, **ONE_THREAD}).returncode:
            failed.append(name)
    done = [name for name in NAMES if name not in failed]
    results = [json.loads((HERE / "results" / f"{name}.json").read_text()) for name in done]
    if results:
        keys = ("machine", "python", "torch", "transformers", "commit", "date")
        print("\n".join(f"{key:13} {results[-1][key]}" for key in keys))
        for model in dict.fromkeys(result["model"] for result in results):
            print(f"{'model':13} {model}")
    for result in results:
        for row in result["rows"]:
            if row["verdict"] == "NOT REACHED":
                print(f"NOT REACHED   {result['name']}: {row['what']}")
    for name in failed:
        print(f"DID NOT RUN   {name}")
    print(f"{(time.perf_counter() - start) / 60:.1f} minutes; numbers in {HERE / 'results'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
