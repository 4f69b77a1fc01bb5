"""The relay is itself a network, so it is tested as one: what goes in comes out, when it should."""

import contextlib
import socket
import threading

import pytest

from faults.relay import CALM, Weather

ENOUGH_S, SHORT_S = 120, 0.1


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


@pytest.mark.parametrize(
    "weather",
    [CALM, Weather(delay_s=0.01, loss=0.3, bytes_per_s=1e7)],
    ids=["calm", "bad"],
)
def test_every_byte_comes_once_and_in_order(network, echo, weather):
    with dial(network.relay(echo, weather)) as line:
        data = bytes(range(256)) * 512
        assert there_and_back(line, data) == data


def test_a_cut_line_is_silent_to_old_and_new_callers_and_loses_nothing_when_it_heals(network, echo):
    relay = network.relay(echo)
    with dial(relay) as old:
        assert there_and_back(old, b"before") == b"before"
        relay.cut()
        with dial(relay) as new:
            for line in (old, new):
                line.sendall(b"during")
                line.settimeout(SHORT_S)
                with pytest.raises(TimeoutError):
                    line.recv(1)
            relay.heal()
            for line in (old, new):
                line.settimeout(ENOUGH_S)
                assert line.recv(6) == b"during"
