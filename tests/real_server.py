"""A real server in processes of its own, which a test starts, waits for and kills."""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path


class RealServer:
    """A server at a free port; a subclass starts it by ``launch``."""

    def __init__(self, model, log):
        self.model, self.log, self.process = Path(model), Path(log), None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"

    @property
    def port(self):
        return self.url.rpartition(":")[2]

    def launch(self, command, environment, **options):
        """Start it, without this process's PYTHONPATH, in a session that ``kill`` ends."""
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=inherited | environment, stdout=log, stderr=log,
                start_new_session=True, **options,
            )  # fmt: skip

    def wait_for(self, path, longest_s):
        """Wait until it answers at ``path``."""
        start = time.monotonic()
        while time.monotonic() - start < longest_s:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            with suppress(OSError), urllib.request.urlopen(self.url + path, timeout=5):
                print(f"[{self.url} was there after {time.monotonic() - start:.0f} s]")
                return
            time.sleep(0.5)
        raise AssertionError(f"no server within {longest_s} s: {self.log.read_text()[-3000:]}")

    def kill(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
