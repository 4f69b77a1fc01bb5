"""Output for people: a run while it goes, and a run folder afterwards.

No torch, no model, no network. Text of a model or a peer passes ``printable`` before it is shown,
wherever that is.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

from rich.console import Console

from potluck.reports.events import Display, EventLines, Fanout
from potluck.show.terminal.live import LiveDisplay
from potluck.types import PotluckError


@dataclass(frozen=True, slots=True)
class Watched:
    """Facts about a run that a display needs when it opens."""

    console: Console
    rounds: int
    first_round: int = 0
    """Round in which a resumed run goes on; from 0."""


DISPLAYS: dict[str, Callable[[Watched], AbstractContextManager[Display]]] = {
    "live": lambda run: LiveDisplay(run.console, rounds=run.rounds, first_round=run.first_round),
    "lines": lambda run: nullcontext(EventLines(sys.stdout)),
    "none": lambda run: nullcontext(Fanout()),
}


@contextmanager
def open_displays(names: Sequence[str], run: Watched) -> Iterator[Display]:
    """Open these displays until the block ends; raise PotluckError if there is none of a name."""
    if unknown := [name for name in names if name not in DISPLAYS]:
        raise PotluckError(f"--display is {unknown[0]!r}; choose one of {', '.join(DISPLAYS)}")
    with ExitStack() as stack:
        opened = [stack.enter_context(DISPLAYS[name](run)) for name in dict.fromkeys(names)]
        yield Fanout(opened)
