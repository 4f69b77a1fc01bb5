import pytest

from faults.exchanges import Swarm
from faults.relay import Network


@pytest.fixture
def swarm():
    with Swarm() as swarm:
        yield swarm


@pytest.fixture
def network():
    with Network() as network:
        yield network
