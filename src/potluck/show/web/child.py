"""The page of a run that is being started: a server in a process of its own.

Training never waits for it: whatever happens to that process, the run goes on. It ends when its
stdin is closed, so it does not outlive this process, however that one ends.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from potluck.files import one_line
from potluck.types import PotluckError

START_S = 60.0
"""Time in which a server must have told its address; on a busy machine imports take seconds."""
END_S = 3.0
"""Time that it has for its last messages."""


class PageError(PotluckError):
    """A page that cannot be served."""


@contextmanager
def page_of(folder: Path, address: str = "", *, token: bool = False) -> Iterator[str]:
    """Serve the page of a run until the block ends; yield its address. Raise PageError if it cannot
    be served."""
    more = [*(("--web-at", address) if address else ()), *(("--web-token",) if token else ())]
    process = subprocess.Popen(
        [sys.executable, "-m", "potluck", "watch", str(folder), "--of-run", *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # Ctrl-C in a terminal is for the run; the page shows its end.
        process_group=0,
    )
    assert process.stdin
    assert process.stdout
    try:
        address = _address(process)
        # What it says later is of no use here, but must not fill the pipe.
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield address
    finally:
        process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _address(process: subprocess.Popen[bytes]) -> str:
    """Return the address that the server prints first; raise PageError with its last line else."""
    assert process.stdout
    last, too_late = "it said nothing", threading.Timer(START_S, process.kill)
    too_late.start()
    try:
        for line in process.stdout:
            if line.startswith(b"http://"):
                return line.decode().strip()
            last = line.decode(errors="replace").strip() or last
    finally:
        too_late.cancel()
    raise PageError(one_line(last).removeprefix("potluck: "))
