"""A round as one node has it, as a file: the messages that it learned from, as they came.

    page = one MessagePack array [version, round, node, missing, messages]

It is what a resumed run reads instead of asking again, and the log for whoever wants to replay
a run: sealed messages still carry their author's signature.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from potluck.exchange.base import Round, Traffic, WireError, reading_order
from potluck.exchange.identity import without_seal
from potluck.exchange.wire import decode
from potluck.types import Completion

PAGE_VERSION = 1


class _Page(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    round: Annotated[int, Meta(ge=0)]
    node: str
    missing: list[str]
    messages: list[bytes]


def encode_page(round: int, node: str, arrived: Round) -> bytes:
    """What ``decode_page`` makes ``arrived`` of again, but for what was refused."""
    page = _Page(PAGE_VERSION, round, node, list(arrived.missing), list(arrived.messages))
    return msgspec.msgpack.encode(page)


def batches_of(arrived: Round) -> dict[tuple[str, int], bytes]:
    """Of author and round, the bytes that ``arrived`` was read from."""
    heads = [(decode(without_seal(data)), data) for data in arrived.messages]
    return {(message.sender, message.round): data for message, data in heads}


def decode_page(data: bytes, *, run: str, round: int, node: str) -> Round:
    """The round that a file holds. Signatures are not looked at again: the file is one's own.

    Raises:
        WireError: it is damaged, or another round's, node's or run's.
    """
    try:
        page = msgspec.msgpack.decode(data, type=_Page)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"round {round} of {node!r} is not readable: {error}") from error
    if (page.version, page.round, page.node) != (PAGE_VERSION, round, node):
        raise WireError(
            f"a page of version {page.version}, round {page.round} and node {page.node!r} lies "
            f"where that of version {PAGE_VERSION}, round {round} and {node!r} belongs"
        )
    by_round: dict[int, list[Completion]] = {round: []}
    sent_bytes = sent_tokens = received_bytes = 0
    for data in page.messages:
        message = decode(without_seal(data))
        if message.run != run or message.round > round:
            raise WireError(
                f"a message of round {message.round} of {message.run!r} lies in round {round} of "
                f"{run!r}"
            )
        by_round.setdefault(message.round, []).extend(message.completions)
        if message.sender == node:
            sent_bytes, sent_tokens = len(data), sum(len(c.token_T) for c in message.completions)
        else:
            received_bytes += len(data)
    return Round(
        reading_order(by_round.pop(round)),
        tuple(page.missing),
        {then: reading_order(by_round[then]) for then in sorted(by_round)},
        tuple(page.messages),
        Traffic(sent_bytes, sent_tokens, received_bytes),
    )
