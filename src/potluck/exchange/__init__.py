"""How completions travel. Imports neither torch nor the model: bytes in, nouns out."""

from potluck.exchange.base import (
    Exchange,
    ExchangeError,
    Round,
    Traffic,
    Waiting,
    WireError,
    reading_order,
)
from potluck.exchange.identity import Key
from potluck.exchange.memory import MemoryHub
from potluck.exchange.page import batches_of, decode_page, encode_page
from potluck.exchange.terms import Terms
from potluck.exchange.wire import Limits, Message, Origin, decode, encode

__all__ = [
    "Exchange",
    "ExchangeError",
    "Key",
    "Limits",
    "MemoryHub",
    "Message",
    "Origin",
    "Round",
    "Terms",
    "Traffic",
    "Waiting",
    "WireError",
    "batches_of",
    "decode",
    "decode_page",
    "encode",
    "encode_page",
    "reading_order",
]
