"""A process for what a stranger decides: the kernel bounds its memory, and its processor time for
one line. It ends when its input does, so also when its parent is killed."""

import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import chain
from select import select
from time import monotonic

from potluck.search_path import LEFT_OUT, folders_for_child

START_LIMIT_S = 120.0
"""Time on the clock until a process is ready. An idle machine needs one or two."""
SERVE = """
import sys
sys.path[:] = sys.argv.pop(1).split("\\n")
from potluck.confined import answer_lines
from {} import prepare
answer_lines(prepare)
"""
"""Program of a process. It gets the places of modules as an argument, not by PYTHONPATH: there
Python would look for a ``sitecustomize`` and run it."""
VARIABLES = frozenset(
    {
        *("LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES"),
        *("LC_MONETARY", "LC_NUMERIC", "LC_TIME"),
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TZ", "USER"),
        *("TEMP", "TMP", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
        *("DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE", "PYTHONPYCACHEPREFIX", "PYTHONUTF8"),
        *("GOMP_SPINCOUNT", "NUMEXPR_NUM_THREADS", "TOKENIZERS_PARALLELISM"),
        *("CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_DATASETS_CACHE"),
        *("SSL_CERT_DIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", LEFT_OUT),
    }
)
"""Variables of the environment that a process gets, beside those that begin with PREFIXES: what
programs need to find files and to compute. Any other one may be a secret; ``LC_*``, too, which ssh
hands on whatever it holds."""
PREFIXES = ("KMP_", "MKL_", "OMP_", "OPENBLAS_")
LONGEST_ERROR, LONGEST_ANSWER = 2000, 2**26
"""Characters of an error's line that is written, bytes of a line that is read."""


class NotReady(Exception):
    """A process did not start; the message is the line that it wrote, "" if it ended."""


class Confined:
    """A process that answers a line at a time, for one thread; asking starts it, again if ended."""

    def __init__(
        self,
        module: str,
        cpu_limit_s: float,
        limit_bytes: int,
        *words: str,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start nothing yet. ``prepare(*words)`` of the module makes what answers a line;
        ``variables`` are added to those of this process that ``needed_variables`` returns."""
        self._program = SERVE.format(module)
        self._words = [str(cpu_limit_s), str(limit_bytes), *words]
        self._variables = variables or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        if self._process and self._process.poll() is not None:
            self.end()
        return self._process

    def ask(self, text: str, limit_s: float, *, tries: int = 2) -> str:
        """Write ``text`` and read the next line, within ``limit_s`` on the clock. Return "" and end
        the process where it breaks a limit or writes unasked. Raise NotReady if none starts."""
        for _ in range(tries):
            with suppress(BrokenPipeError):  # it ended since it was last asked
                if self.process is None:
                    self._start()
                return self._said(text, limit_s)
        return ""

    def _start(self) -> None:
        # The process sees the modules that this one sees, however they were found.
        places = "\n".join(folders_for_child())
        # With one hash seed, algebra takes the same steps on every node.
        fixed = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        process = self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", self._program, places, *self._words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**needed_variables(), **fixed, **self._variables},
            start_new_session=True,  # Ctrl-C in the terminal is for the run, not for it
        )
        self._ending = weakref.finalize(self, _end, process)
        assert process.stdin
        assert process.stdout
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._in, False)  # a process need not read what it is sent
        if (said := self._said("", START_LIMIT_S)) != "ready":
            self.end()
            raise NotReady(said)

    def _said(self, text: str, limit_s: float) -> str:
        line = b""
        try:
            if text and select([self._out], [], [], 0)[0]:
                if os.read(self._out, 1):  # what nobody asked for
                    return ""
                raise BrokenPipeError
            until_s, left = monotonic() + limit_s, memoryview(text.encode())
            while left and select([], [self._in], [], max(0.0, until_s - monotonic()))[1]:
                left = left[os.write(self._in, left) :]
            line = b"" if left else self._line(until_s)
        finally:
            if not line:  # after Ctrl-C the next text would get this one's answer
                self.end()
        return line.decode(errors="replace").strip()

    def _line(self, until_s: float) -> bytes:
        pipe, line = self._out, bytearray()
        while len(line) <= LONGEST_ANSWER and (left_s := until_s - monotonic()) > 0:
            part = os.read(pipe, 2**16) if select([pipe], [], [], left_s)[0] else b""
            line += part
            if b"\n" in part:
                return bytes(line) if part.index(b"\n") == len(part) - 1 else b""
            if not part:
                break
        return b""

    def kill(self) -> None:
        """Have it end while another thread waits for it, which then hears that it ended."""
        if process := self._process:
            process.kill()

    def end(self) -> None:
        """End it, and what it started."""
        if self._process:
            self._ending()
        self._process = None


def needed_variables() -> dict[str, str]:
    """Return the variables of the environment that a stranger's work needs, and no secret."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in VARIABLES or name.startswith(PREFIXES)
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    # It is not known to have ended before ``wait``, so its number is still its own.
    if process.returncode is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in filter(None, (process.stdin, process.stdout)):
        with suppress(OSError):
            pipe.close()


def answer_lines(prepare: Callable[..., Callable[[bytes], str]]) -> None:
    """Answer "ready", then each line of standard input; or with the error that came of it."""
    import resource  # not on every system

    limit_s, limit_bytes = float(sys.argv[1]), int(sys.argv[2])
    # Libraries that print, print to nowhere; nothing but this reads the lines.
    lines, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    answer: Callable[[bytes], str] | None = None
    for line in chain([b""], lines):
        signal.setitimer(signal.ITIMER_PROF, limit_s if answer else 0)  # no handler runs: it kills
        try:
            if answer:
                said = answer(line)
            else:
                answer, said = prepare(*sys.argv[3:]), "ready"
        except MemoryError:
            return  # another process is better than one with something left half done
        except Exception as error:  # a stranger's work may raise anything
            said = f"{type(error).__name__}: {error}".splitlines()[0][:LONGEST_ERROR]
        signal.setitimer(signal.ITIMER_PROF, 0)
        out.write(said.encode(errors="replace") + b"\n")
        out.flush()
