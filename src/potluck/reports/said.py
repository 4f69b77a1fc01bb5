"""Episodes as completions.jsonl has them: who said what, in order, to be shown.

All of it is text of models and environments, and not safe to show as it is.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

from potluck.reports.tail import DAMAGED


class Called(msgspec.Struct, frozen=True):
    """A call of a tool."""

    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")

    def __str__(self) -> str:
        arguments = bytes(self.arguments)
        with suppress(*DAMAGED):  # escapes of letters become letters
            arguments = msgspec.json.encode(msgspec.json.decode(arguments))
        return f"{self.name}({arguments.decode(errors='replace')})"


class Said(msgspec.Struct, frozen=True):
    """A message of an episode: one of the list that ``episode.transcript`` makes."""

    role: str = ""
    """assistant: the model wrote it; all others: the environment said it."""
    content: str = ""
    calls: tuple[Called, ...] = ()

    @property
    def is_written(self) -> bool:
        return self.role == "assistant"

    @property
    def words(self) -> str:
        """The content and the calls, a line each.

        >>> Said("assistant", "I add.", (Called("add", msgspec.Raw(b'{"a": 1}')),)).words
        'I add.\\nadd({"a":1})'
        """
        return "\n".join([*([self.content] if self.content else ()), *map(str, self.calls)])


def lines_of(messages: Iterable[Said]) -> Iterator[tuple[Said, str]]:
    """Yield each line of what was said, with its message; an empty message has one line."""
    for said in messages:
        for line in said.words.split("\n"):
            yield said, line
