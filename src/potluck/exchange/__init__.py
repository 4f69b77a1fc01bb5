"""The exchange of completions between nodes. Imports neither torch nor the model."""

from potluck.exchange.base import (
    Delivery,
    Exchange,
    ExchangeError,
    Received,
    Round,
    Status,
    Waiting,
    WireError,
    canonical_order,
)
from potluck.exchange.keys.keys import Key
from potluck.exchange.memory import MemoryHub
from potluck.exchange.protocol.rules import InStep, MailboxRule, Newest
from potluck.exchange.transport import TRANSPORTS, Agreement, Membership, Transport, transport
from potluck.exchange.wire.codec import batches_of, decode, decode_round, encode, encode_round
from potluck.exchange.wire.message import Limits, Message, Provenance

__all__ = [
    "TRANSPORTS", "Agreement", "Delivery", "Exchange", "ExchangeError", "InStep", "Key", "Limits",
    "MailboxRule", "Membership", "MemoryHub", "Message", "Newest", "Provenance",
    "Received", "Round", "Status", "Transport", "Waiting", "WireError",
    "batches_of", "canonical_order", "decode", "decode_round", "encode", "encode_round",
    "transport",
]  # fmt: skip
