"""The gate asks failed tests once more, on a little suite: what then passes is not red."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci/unsteady.py"
SUITE = {
    "test_steady.py": "def test_passes(): pass",
    "test_once.py": """
        from pathlib import Path

        def test_fails_once():
            memory = Path(__file__).with_name("memory")
            began = memory.exists()
            memory.touch()
            assert began, "a clock was slow"
    """,
    "test_always.py": "def test_fails(): raise ValueError('a fault')",
    "test_broken.py": "import nothing_of_this_name",
    "test_ends.py": "import os\ndef test_ends(): os._exit(3)",
    "test_hangs.py": "import threading\ndef test_hangs(): threading.Event().wait()",
}
LIMITS = ("-o", "faulthandler_timeout=1", "-o", "faulthandler_exit_on_timeout=true")

pytestmark = pytest.mark.page


@pytest.fixture
def gate(tmp_path):
    """A function that calls the script: (exit code, stdout, stderr)."""
    for name, text in SUITE.items():
        lines = text.splitlines()
        (tmp_path / name).write_text("\n".join(line.removeprefix(" " * 8) for line in lines))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "POTLUCK"))}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist.plugin -q"}

    def call(*words):
        words = [sys.executable, SCRIPT, *words]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    return call


def asked(gate, *files, record="record.json"):
    return gate("first", record, sys.executable, "-m", "pytest", *files)


def test_a_test_that_fails_once_is_told_and_not_red(gate):
    assert asked(gate, "test_steady.py", record="others.json")[0] == 0
    code, said, _ = gate("again", "others.json")  # green: nothing is asked again
    assert (code, len(said.splitlines())) == (0, 1)
    code, said, _ = asked(gate, "test_once.py")
    assert (code, "1 failed" in said) == (0, True)
    code, said, _ = gate("again", "others.json", "record.json")
    assert (code, said.splitlines()[-1].startswith("2 passed in ")) == (0, True)
    assert "unsteady: test_once.py::test_fails_once" in said
    assert "a clock was slow" in said


def test_a_test_that_fails_twice_is_red(gate):
    assert asked(gate, "test_steady.py", "test_once.py", "test_always.py")[0] == 0
    code, said, trouble = gate("again", "record.json")
    assert (code, said.splitlines()[-1].startswith("1 failed, 2 passed in ")) == (1, True)
    assert "failed twice: test_always.py::test_fails\n    call: ValueError: a fault" in said
    assert "1 of the tests failed twice" in trouble


@pytest.mark.parametrize(
    "words, why",
    [
        (["test_broken.py", "test_steady.py"], "test_broken.py: ImportError"),
        (["-n0", "test_ends.py"], "ended with code 3 before pytest's summary"),
        (["-n1", "test_hangs.py", *LIMITS], "crashed while running 'test_hangs.py::test_hangs'"),
        (["no_such_file.py"], "pytest ended with status 4"),
    ],
)
def test_what_is_no_failure_of_a_single_test_is_red_at_once(gate, words, why):
    code, _, trouble = asked(gate, *words)
    assert code == 1
    assert why in trouble


def test_a_process_lost_between_the_first_look_and_the_second_is_red(gate, tmp_path):
    assert asked(gate, "test_once.py")[0] == 0
    (tmp_path / "test_once.py").write_text(SUITE["test_ends.py"].replace("ends()", "fails_once()"))
    code, _, trouble = gate("again", "record.json")
    assert code == 1
    assert "ended with code 3" in trouble
