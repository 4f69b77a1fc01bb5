"""``potluck watch`` in a process of its own, and ways to ask it."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from urllib.parse import urlencode

# No proxy of the machine stands between two processes of it.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def watching(*words, command="watch", **environment):
    """Yield (address, process) of a page that is served."""
    code = "from potluck.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, command, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stdout.read()
        yield found[0], process
    finally:
        process.kill()
        process.communicate()


def answer(address, path="", headers=None, **question):
    """Return (status, headers, body) of a request."""
    request = urllib.request.Request(
        f"{address}{path}?{urlencode(question)}" if path or question else address,
        headers=headers or {},
    )
    try:
        with OPENER.open(request, timeout=300) as got:
            return got.status, got.headers, got.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def asked(address, path, **question):
    """Return what the API answers."""
    status, _, body = answer(address, f"api/{path}", **question)
    assert status == 200, body
    return json.loads(body)


def events(address, run="", headers=None):
    """Yield the messages of a stream; the last one that comes without new ones is its end."""
    question = urlencode({"run": run})
    request = urllib.request.Request(f"{address}api/events?{question}", headers=headers or {})
    with OPENER.open(request, timeout=300) as stream:
        for line in stream:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))
