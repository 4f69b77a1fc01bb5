import pytest

from town import open_sessions, town


@pytest.fixture(scope="session")
def sessions():
    """Four that are connected each to each; a test's nodes have a run of their own on them."""
    opened = open_sessions(4)
    yield opened
    for session in opened:
        session.close()


@pytest.fixture
def place(tmp_path, sessions):
    with town(tmp_path, sessions, "east", "north", "south") as place:
        yield place
