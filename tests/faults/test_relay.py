"""The relay is itself a network, so it is tested as one: what goes in comes out, when it should."""

import contextlib
import socket
import threading
import time

import pytest

from faults.relay import CALM, Network, Weather

ENOUGH_S, SHORT_S = 120, 0.1


@pytest.fixture
def network():
    with Network() as network:
        yield network


@pytest.fixture
def echo():
    """A port where everything comes back."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept, args=(server,), daemon=True).start()
        yield server.getsockname()[1]
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _accept(server):
    with contextlib.suppress(OSError):
        while True:
            threading.Thread(target=_echo, args=(server.accept()[0],), daemon=True).start()


def _echo(connection):
    with connection, contextlib.suppress(OSError):
        connection.settimeout(ENOUGH_S)
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def dial(relay):
    return socket.create_connection(("127.0.0.1", relay.port), ENOUGH_S)


def there_and_back(line, data):
    """Sends in a thread, as ``data`` may be more than all buffers hold."""
    sending = threading.Thread(target=line.sendall, args=(data,), daemon=True)
    sending.start()
    got = b""
    while len(got) < len(data) and (more := line.recv(1 << 16)):
        got += more
    sending.join(ENOUGH_S)
    return got


def seconds_of(line, data):
    start = time.perf_counter()
    assert there_and_back(line, data) == data
    return time.perf_counter() - start


@pytest.mark.parametrize(
    "weather",
    [CALM, Weather(delay_s=0.01), Weather(loss=0.3), Weather(bytes_per_s=1e7)],
    ids=["calm", "delay", "loss", "bandwidth"],
)
def test_every_byte_comes_once_and_in_order(network, echo, weather):
    with dial(network.relay(echo, weather)) as line:
        data = bytes(range(256)) * (512 if weather.loss else 4096)
        assert there_and_back(line, data) == data


def test_a_delay_is_waited_for_in_each_direction(network, echo):
    relay = network.relay(echo)
    with dial(relay) as line:
        seconds_of(line, b"warm")
        relay.weather = Weather(delay_s=0.1)
        assert seconds_of(line, b"x") >= 0.2


def test_a_delay_does_not_slow_what_is_already_on_its_way(network, echo):
    """64 chunks that each waited for the one before would take half a minute."""
    with dial(network.relay(echo, Weather(delay_s=0.25))) as line:
        assert seconds_of(line, bytes(1 << 20)) < 64 * 2 * 0.25


def test_what_is_lost_comes_after_a_pause(network, echo):
    with dial(network.relay(echo, Weather(loss=1.0))) as line:
        assert seconds_of(line, b"x") >= 0.4


def test_a_narrow_line_takes_its_time_and_is_shared(network, echo):
    relay = network.relay(echo, Weather(bytes_per_s=2e6))
    with dial(relay) as one, dial(relay) as other:
        start = time.perf_counter()
        threads = [threading.Thread(target=seconds_of, args=(line, bytes(200_000)))
                   for line in (one, other)]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(ENOUGH_S)
        assert time.perf_counter() - start >= 0.2
    assert relay.passed_bytes == {"there": 400_000, "back": 400_000}


def test_a_cut_line_is_silent_and_loses_nothing_when_it_heals(network, echo):
    relay = network.relay(echo)
    with dial(relay) as line:
        seconds_of(line, b"before")
        relay.cut()
        line.sendall(b"during")
        line.settimeout(SHORT_S)
        with pytest.raises(TimeoutError):
            line.recv(1)
        relay.heal()
        line.settimeout(ENOUGH_S)
        assert line.recv(6) == b"during"


def test_who_calls_while_the_line_is_cut_is_neither_refused_nor_answered_until_it_heals(
    network, echo
):
    relay = network.relay(echo)
    relay.cut()
    with dial(relay) as line:
        line.sendall(b"x")
        line.settimeout(SHORT_S)
        with pytest.raises(TimeoutError):
            line.recv(1)
        relay.heal()
        line.settimeout(ENOUGH_S)
        assert line.recv(1) == b"x"


def test_a_reset_ends_connections_and_refuses_new_ones_until_it_heals(network, echo):
    relay = network.relay(echo)
    with dial(relay) as line:
        seconds_of(line, b"x")
        relay.reset()
        assert ended(line)
        with dial(relay) as another:
            assert ended(another)
    relay.heal()
    with dial(relay) as line:
        assert there_and_back(line, b"x") == b"x"


def test_the_end_of_one_is_the_end_of_the_other(network, echo):
    with dial(network.relay(echo)) as line:
        line.sendall(b"last")
        line.shutdown(socket.SHUT_WR)
        assert line.recv(4) == b"last"
        assert line.recv(1) == b""


def test_where_nobody_listens_a_connection_ends_and_works_when_somebody_does(network):
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    relay = network.relay(port)
    with dial(relay) as line:
        assert ended(line)
    with socket.create_server(("127.0.0.1", port)) as server, dial(relay) as line:
        line.sendall(b"x")
        far, _ = server.accept()
        with far:
            assert far.recv(1) == b"x"


def ended(line):
    try:
        return line.recv(1) == b""
    except ConnectionError:
        return True
