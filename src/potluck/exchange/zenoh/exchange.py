"""The exchange over Zenoh: a session, and one node's endpoint on it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

import zenoh

from potluck.exchange.processes.exchange import ProcessExchange
from potluck.exchange.transport import Membership
from potluck.exchange.zenoh.addresses import check_endpoints, free_endpoints, try_endpoint
from potluck.exchange.zenoh.endpoint import ZenohEndpoint
from potluck.exchange.zenoh.session import Endpoints, Tls, open_patiently

__all__ = ["ZenohExchange", "check_endpoints", "free_endpoints", "open_exchange", "try_endpoint"]


@contextmanager
def open_exchange(own: Membership) -> Iterator["ZenohExchange"]:
    tls = Tls(own.certificates, own.agreement.node, own.may_connect) if own.certificates else None
    line = Endpoints(own.listen, own.connect, tls)
    session = open_patiently(line, run=own.agreement.run, waiting=own.waiting)
    with closing(session), closing(ZenohExchange(session, own)) as exchange:
        yield exchange


class ZenohExchange(ProcessExchange):
    """One node's connection by Zenoh. ``session`` stays open when it is closed."""

    def __init__(self, session: zenoh.Session, own: Membership) -> None:
        super().__init__(own, partial(ZenohEndpoint, session))
