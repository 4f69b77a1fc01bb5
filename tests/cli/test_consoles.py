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


@pytest.mark.parametrize("name", ["WORLD_SIZE", "RANK", "LOCAL_RANK"])
@pytest.mark.parametrize("value", ["abc", "-1", "1.5"])
def test_a_rank_that_is_no_number_is_refused_in_one_line(name, value):
    environment = {**os.environ, name: value}
    words = [sys.executable, "-P", "-m", "potluck", "show", "nowhere"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"potluck: the environment has {name} = '{value}'; expected a")
