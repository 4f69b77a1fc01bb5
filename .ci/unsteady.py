"""Ask the tests that failed once more: alone, in one process, when nothing runs beside them.

unsteady.py first RECORD COMMAND...   run tests; exit 0 if each that failed can be asked again
unsteady.py again RECORD...           ask them; exit 1 if any fails twice

A test that hangs, a process that crashes, a module that cannot be imported and a run that ended
before its last test are no failures of single tests, so the first command fails on them. This file
is a plugin of pytest too: it writes the records.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LIMIT_S = 45 * 60
RECORD = "POTLUCK_TESTS_RECORD"


def pytest_configure(config):
    if RECORD in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(os.environ[RECORD])))


class Recorder:
    """The plugin: a file of what pytest's last line counts, and of each failure."""

    def __init__(self, path):
        self._path, self._lost, self._began_s = path, [], time.monotonic()

    def pytest_testnodedown(self, node, error):
        if error:
            self._lost.append(f"process {node.gateway.id}: {error}")

    def pytest_terminal_summary(self, terminalreporter, exitstatus):
        stats, failed = terminalreporter.stats, {}
        for report in stats.get("failed", []) + stats.get("error", []):
            crash = getattr(report.longrepr, "reprcrash", None)
            said = crash.message if crash else str(report.longrepr)
            line = said.strip().splitlines()[0][:200] if said.strip() else "it says nothing"
            if report.when in ("setup", "call", "teardown"):
                failed.setdefault(report.nodeid, f"{report.when}: {line}")
            else:  # a module that cannot be imported; a crash, for which xdist writes "???"
                self._lost.append(f"{report.nodeid}: {line}")
        record = {
            "status": int(exitstatus),
            "seconds": time.monotonic() - self._began_s,
            "lost": self._lost,
            "failed": failed,
            "passed": [report.nodeid for report in stats.get("passed", [])],
            "skipped": [report.nodeid for report in stats.get("skipped", [])],
        }
        self._path.write_text(json.dumps(record), encoding="utf-8")


def run(record: Path, words: list[str]) -> str:
    """Run tests with the plugin and return why the record does not count, or nothing."""
    folder, path = str(Path(__file__).parent), os.environ.get("PYTHONPATH")
    more = {
        RECORD: str(record.absolute()),
        "PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} -p unsteady",
        "PYTHONPATH": os.pathsep.join([folder, path] if path else [folder]),
    }
    record.unlink(missing_ok=True)
    process = subprocess.Popen(words, env=os.environ | more, process_group=0)
    try:
        process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"the tests took more than {LIMIT_S // 60} minutes"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    if not record.exists():
        return f"the tests ended with code {process.returncode} before pytest's summary"
    found = json.loads(record.read_text(encoding="utf-8"))
    if found["lost"]:
        return "\n".join(["more failed than single tests:", *found["lost"]])
    # 0: all passed; 1: some failed. Any other status means that pytest did not come to its end.
    return "" if found["status"] in (0, 1) else f"pytest ended with status {found['status']}"


def again(paths: list[Path]) -> str:
    """Ask what failed, print the verdicts and pytest's last line for all; return what is red."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    failed = {name: line for record in records for name, line in record["failed"].items()}
    twice = {}
    if failed:
        path = paths[0].with_suffix(".again")
        if trouble := run(path, [sys.executable, "-m", "pytest", "-n0", *failed]):
            return trouble
        records.append(json.loads(path.read_text(encoding="utf-8")))
        green = set(records[-1]["passed"]) - set(records[-1]["failed"])
        twice = {name: line for name, line in failed.items() if name not in green}
    for name, line in failed.items():
        print(f"{'failed twice' if name in twice else 'unsteady'}: {name}\n    {line}")
    passed = {name for record in records for name in record["passed"]} - set(twice)
    skipped = [name for record in records for name in record["skipped"] if name not in twice]
    counts = {"failed": len(twice), "passed": len(passed), "skipped": len(skipped)}
    line = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    print(f"{line} in {sum(record['seconds'] for record in records):.2f}s")
    return f"{len(twice)} of the tests failed twice" if twice else ""


if __name__ == "__main__":
    command, first, *rest = sys.argv[1:]
    if command == "first":
        sys.exit(run(Path(first), rest) or 0)
    sys.exit(again([Path(first), *map(Path, rest)]) or 0)
