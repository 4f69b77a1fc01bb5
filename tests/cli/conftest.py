import pytest


@pytest.fixture
def refused(potluck_says):
    """A function that calls the command line, which refuses in one line: the line."""

    def call(*words):
        code, out, err = potluck_says(*words)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("potluck: ")
        return err

    return call
