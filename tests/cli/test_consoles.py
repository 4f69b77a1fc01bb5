"""Consoles that cannot say all signs."""

import os
import subprocess
import sys

import pytest

SAYS = "import typer, potluck.cli as c; c.app = lambda **_: print('a \\u2192 b \\u00e9'); c.main()"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_a_sign_that_a_console_has_not_breaks_no_command(encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", SAYS], env=environment, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"a ? b" if encoding != "utf-8" else "a \u2192 b".encode())
