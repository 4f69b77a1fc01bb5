"""Statistics: what people see of a report's number, declared once, with the number's field."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Literal, get_args, get_type_hints

Number = float | None
"""A number of a report; None: it was not measured."""
Unit = Literal["share", "nats", "count", "seconds", "bytes", "number"]
Section = Literal["Results", "Training", "Episodes", "Time", "Network"]
SECTIONS: tuple[Section, ...] = get_args(Section)
PHASES = ("write", "learn", "wait", "exchange")
"""Phases of a round that its ``seconds`` name."""
EARNED_NOTHING = ("cut", "empty", "form", "wrong")
"""Kinds of completions that earned nothing: cut off, empty, not in the form of an answer, wrong."""


@dataclass(frozen=True, slots=True)
class Stat:
    """One number of a report as people see it; text beside it in ``Annotated`` is its ``help``."""

    title: str = ""
    """Name on the page; empty: the page does not show it."""
    unit: Unit = "number"
    group: Section = "Training"
    """Heading above the curve of a round's number; an author's of "Episodes" have a table of their
    own in ``potluck show``."""
    format: str = ""
    """Format of its value in the tables of ``potluck show``; empty: it is in none."""
    row: str = ""
    """Name in these tables; empty: the title."""
    warning: str = ""
    """Text before the count in a round's line on the terminal, of what a good round has none of."""
    signed: bool = False
    """True: it may be below 0, so a cell's colour tells the side."""
    parts: tuple[str, ...] = ()
    """Keys of a table of numbers; each is a curve of its own, "NAME/KEY"."""
    help: str = ""
    """Meaning in one or two sentences."""

    @property
    def name(self) -> str:
        """Name in a terminal: "learning rate", but "KL to the start"."""
        lower = self.title[:1].lower() + self.title[1:]
        return self.row or (self.title if self.title[:2].isupper() else lower)


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


@cache
def stats_of(report: type) -> Mapping[str, Stat]:
    """Return the statistics of a report's fields, by name, in the order of declaration."""
    found = {}
    for name, kind in get_type_hints(report, include_extras=True).items():
        match getattr(kind, "__metadata__", ()):
            case (Stat() as stat, *texts):
                found[name] = replace(stat, help="".join(texts))
    return found


def numbers_on_page(*of: Mapping[str, Stat]) -> dict[str, dict[str, str]]:
    """Return what the page tells of numbers, by field, as plain data: title, unit, help, group, and
    "scale", by which a cell is coloured. A group's numbers stand together."""
    shown: dict[str, dict[str, str]] = {}
    stats = chain.from_iterable(several.items() for several in of)
    for name, stat in sorted(stats, key=lambda item: SECTIONS.index(item[1].group)):
        scale = "share" if stat.unit == "share" else "around" if stat.signed else "up"
        facts = {"unit": stat.unit, "help": stat.help, "group": stat.group, "scale": scale}
        if stat.title and not stat.parts:
            shown[name] = {"title": stat.title, **facts}
        for part in stat.parts:
            shown[f"{name}/{part}"] = {"title": f"{stat.title}: {part}", **facts}
    return shown
