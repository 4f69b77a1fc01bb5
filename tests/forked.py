"""Nodes that begin with everything imported: forked from a process that has loaded torch.

Started as a user starts it a node spends five seconds of a core on imports, and all that a
test asks of it takes less than one. What is different in a forked one is its start alone.
"""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

import potluck

PRELOADED = (
    *("potluck.cli", "potluck.launch.in_process", "transformers.models.qwen2.modeling_qwen2"),
    *("torch.distributed.launcher.api", "fork_server"),
)
COMMAND = [sys.executable, "-P", "-m", "potluck"]
SERVER = forkserver._forkserver
PLACE = ("_forkserver_address", "_forkserver_authkey")
SHARED = "POTLUCK_FORK_SERVER"  # its address, for all processes of one pytest -n

PROGRAM = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"."], [1, 2])
    server.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(int(server.recv(16)))
"""


def share_server():
    """Start the server for all test processes: before them, as it ends with what started it."""
    fork_context()
    if not vars(SERVER).get("_forkserver_authkey"):  # Python 3.14 has one in each process
        os.environ[SHARED] = SERVER._forkserver_address


def join_server(place):
    """Have the server at ``place`` fork what this process starts."""
    SERVER._forkserver_alive_fd = SERVER._forkserver_alive_fd or os.pipe()[1]
    vars(SERVER).update(place, ensure_running=lambda: None)


def fork_context():
    """Return what starts forked processes; those of a test process, and theirs, have one server."""
    context = multiprocessing.get_context("forkserver")
    if address := os.environ.get(SHARED):
        join_server({"_forkserver_address": address})
        return context
    context.set_forkserver_preload([*PRELOADED])
    paths = [str(Path(potluck.__file__).parents[1]), str(Path(__file__).parent)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))  # where the server is to find them
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("TERM", "dumb")  # consoles are made at import, where stdout may be a terminal
        # Ctrl-C waits until the command of a node can take it: one that came before ended the
        # node with code 1 and a traceback.
        resource_tracker.ensure_running()  # the server asks for it, which lets Ctrl-C through
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        SERVER.ensure_running()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


class Forked:
    """Stands for a ``subprocess.Popen`` of ``python -P -m potluck``, with the options tests use."""

    def __init__(self, words, *, env, stdout, stderr, stdin=subprocess.DEVNULL, process_group=None):
        assert words[:4] == COMMAND
        assert stdin == subprocess.DEVNULL
        with ExitStack() as stack:
            self.stdout, out = _stream(stack, stdout)
            self.stderr, err = _stream(stack, out if stderr == subprocess.STDOUT else stderr)
            context = fork_context()
            work = (words[4:], env, os.getcwd(), out, err, process_group, place_of_server())
            self._process = context.Process(target=self.run, args=work)
            self._process.start()
        self.pid = self._process.pid

    @staticmethod
    def run(*work):
        run_command(*work)

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


FORKING = SimpleNamespace(
    Popen=Forked, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT
)
"""Stands for the module ``subprocess`` where ``potluck run`` starts its nodes."""


@contextmanager
def potluck_program(path):
    """Write a program that a shell calls in the place of ``potluck``; it is forked from here."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address := f"{folder}/s")
        listener.listen()
        path.write_text(PROGRAM.format(python=sys.executable, address=address))
        path.chmod(0o755)
        thread = Thread(target=_serve, args=(listener,))
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener):
    with suppress(OSError):  # it is shut down
        while True:
            Thread(target=_answer, args=(listener.accept()[0],), daemon=True).start()


def _answer(caller):
    with caller:
        _, (out, err), *_ = socket.recv_fds(caller, 1, 2)
        with caller.makefile("rb") as said:
            words, folder, env = json.load(said)
        with Connection(out, readable=False) as out, Connection(err, readable=False) as err:
            context = fork_context()
            work = (words, env, folder, out, err, None, place_of_server())
            process = context.Process(target=run_command, args=work)
            process.start()
        process.join()
        code = process.exitcode
        caller.sendall(b"%d" % (code if code >= 0 else 128 - code))


def _stream(stack, where):
    """Return the end that is read here, if any is, and the end that the process writes to."""
    read, write = os.pipe() if where == subprocess.PIPE else (None, os.dup(where.fileno()))
    return read and os.fdopen(read, "rb"), stack.enter_context(Connection(write, readable=False))


def place_of_server():
    return {name: vars(SERVER)[name] for name in PLACE if name in vars(SERVER)}


def run_command(words, env, folder, out, err, process_group, server):
    join_server(server)
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
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        from potluck.cli import main
        from potluck.launch import children

        children.subprocess = FORKING  # its nodes, too
        main()
    except KeyboardInterrupt:  # before or after main; multiprocessing would make it code 1
        sys.exit(130)
    finally:  # what comes while it ends changes no code, as in a process of its own
        signal.signal(signal.SIGINT, signal.SIG_IGN)
