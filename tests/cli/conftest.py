import sys

import pytest

from beside import CONSOLE_SCRIPT, folder_with_code


@pytest.fixture
def refused(potluck_says):
    """A function that calls the command line, which refuses in one line: the line."""

    def call(*words):
        code, out, err = potluck_says(*words)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("potluck: ")
        return err

    return call


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """A folder with the program that an installer writes."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "potluck").write_text(f"#!{sys.executable}\n{CONSOLE_SCRIPT}")
    (folder / "potluck").chmod(0o755)
    return folder


@pytest.fixture
def folder(tmp_path):
    """A folder that was downloaded, with code of each kind."""
    return folder_with_code(tmp_path / "downloaded")
