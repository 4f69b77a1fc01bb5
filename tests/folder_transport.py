"""A transport with addresses of its own: nodes that see one folder, ``folder:PATH``."""

import os
from contextlib import contextmanager
from pathlib import Path

from exchange.test_exchange import FolderExchange
from forked import Forked, run_command
from potluck.exchange import TRANSPORTS, ExchangeError

PREFIX = "folder:"


@contextmanager
def open_exchange(own):
    others = sorted({*own.members} - {own.agreement.node})
    received = own.already_received
    yield FolderExchange(path_of(own.listen[0]), own.agreement, others, own.rule, received)


def check_endpoints(where, endpoints, *, tls, listen):
    for endpoint in endpoints:
        if not endpoint.startswith(PREFIX):
            raise ExchangeError(f"{where} is {endpoint!r}; expected {PREFIX}PATH")


def free_endpoints(count, folder):
    (place := folder / "batches").mkdir(exist_ok=True)
    return [f"{PREFIX}{place.absolute()}"] * count


def try_endpoint(endpoint, *, listen):
    try:
        os.listdir(path_of(endpoint))
    except OSError as error:
        return error
    return None


def path_of(endpoint):
    return Path(endpoint.removeprefix(PREFIX))


class Node(Forked):
    """A process that knows the transport."""

    @staticmethod
    def run(*work):
        TRANSPORTS["folder"] = __name__
        run_command(*work)
