"""How completions travel. Imports neither torch nor the model: bytes in, nouns out."""

from potluck.exchange.base import Exchange, ExchangeError, Round, WireError, reading_order
from potluck.exchange.memory import MemoryHub
from potluck.exchange.wire import Message, decode, encode

__all__ = [
    "Exchange",
    "ExchangeError",
    "MemoryHub",
    "Message",
    "Round",
    "WireError",
    "decode",
    "encode",
    "reading_order",
]
