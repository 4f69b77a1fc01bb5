"""Models, and a stand-in server, of runs in which a node writes through one."""

import pytest

import tiny
from stand_in_server import stand_in


@pytest.fixture(scope="session")
def served_models(tmp_path_factory):
    """Without ids beyond the tokenizer's: a server writes them as it writes any other."""
    folder = tmp_path_factory.mktemp("served")
    for seed, name in enumerate(("large", "small")):
        made = tiny.policy(seed)
        made.network.resize_token_embeddings(tiny.VOCABULARY, mean_resizing=False)
        made.network.save_pretrained(folder / name)
        made.tokenizer.save_pretrained(folder / name)
    return {name: str(folder / name) for name in ("large", "small")}


@pytest.fixture
def server(served_models):
    """A server that was started with the model of ``small``."""
    with stand_in(served_models["small"]) as server:
        yield server
