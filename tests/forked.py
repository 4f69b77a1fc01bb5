"""Nodes that begin with everything imported: forked from a process that has loaded torch.

Started as a user starts it a node spends five seconds of a core on imports, and all that a
test asks of it takes less than one. What is different in a forked one is its start alone.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import potluck

PRELOADED = ("potluck.cli", "potluck.launch.in_process", "transformers.models.qwen2.modeling_qwen2")
COMMAND = [sys.executable, "-m", "potluck"]


def fork_context(*preloaded):
    """Return what starts processes that are forked; all of a test process have one server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, *preloaded])
    paths = [str(Path(potluck.__file__).parents[1]), str(Path(__file__).parent)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))  # where the server is to find them
        patch.setenv("HF_HUB_OFFLINE", "1")
        forkserver.ensure_running()
    return context


class Forked:
    """Stands for a ``subprocess.Popen`` of ``python -m potluck``, with the options tests use."""

    def __init__(self, words, *, env, stdout, stderr, stdin=subprocess.DEVNULL, process_group=None):
        assert words[:3] == COMMAND
        assert stdin == subprocess.DEVNULL
        with ExitStack() as stack:
            self.stdout, out = _stream(stack, stdout)
            self.stderr, err = _stream(stack, stdout if stderr == subprocess.STDOUT else stderr)
            work = (words[3:], env, os.getcwd(), out, err, process_group)
            self._process = fork_context().Process(target=_run, args=work)
            self._process.start()
        self.pid = self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for stream in (self.stdout, self.stderr):
            if stream:
                stream.close()
        self.wait()

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(COMMAND, timeout)
        return self._process.exitcode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _stream(stack, where):
    """Return the end that is read here, if any is, and the end that the process writes to."""
    read, write = os.pipe() if where == subprocess.PIPE else (None, os.dup(where.fileno()))
    return read and os.fdopen(read, "rb"), stack.enter_context(Connection(write, readable=False))


def _run(words, env, folder, out, err, process_group):
    if process_group is not None:
        os.setpgid(0, process_group)
    for number, stream in ((1, out), (2, err)):
        os.dup2(stream.fileno(), number)
        stream.close()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["potluck", *words]
    try:
        # The server may be deaf to it, and Python keeps what a process begins with.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from potluck.cli import main

        main()
    except KeyboardInterrupt:  # before or after main; multiprocessing would make it code 1
        sys.exit(130)
