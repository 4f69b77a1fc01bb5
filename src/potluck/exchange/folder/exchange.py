"""The exchange through a folder or a bucket that all nodes see."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from potluck.exchange.base import ExchangeError
from potluck.exchange.folder.endpoint import FolderEndpoint
from potluck.exchange.folder.store import (
    Store,
    check_endpoints,
    free_endpoints,
    try_endpoint,
)
from potluck.exchange.processes.exchange import ProcessExchange
from potluck.exchange.transport import Membership

__all__ = ["FolderExchange", "check_endpoints", "free_endpoints", "open_exchange", "try_endpoint"]


@contextmanager
def open_exchange(own: Membership) -> Iterator["FolderExchange"]:
    (address,) = {*own.listen, *own.connect}
    try:
        exchange = FolderExchange(Store(address), own)
    except OSError as error:
        raise ExchangeError(f"{address} cannot be used: {error}") from error
    with closing(exchange):
        yield exchange


class FolderExchange(ProcessExchange):
    """One node's connection through the files in ``store``."""

    def __init__(self, store: Store, own: Membership) -> None:
        super().__init__(own, partial(FolderEndpoint, store))
