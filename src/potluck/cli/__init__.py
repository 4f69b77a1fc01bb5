"""The command line.

    training.py     demo | new | run
    joining.py      join
    models.py       evaluate | show | export
    replaying.py    replay
    reproducing.py  reproduce
    swarm.py        keys | certificates | relay | doctor

Exit codes: 0 done; 1 something broke down (a number that is not finite, a node that was
killed, a check of the doctor's that failed); 2 something its user can mend, said in one line;
130 ended by Ctrl-C.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from potluck.cli import joining, models, replaying, reproducing, swarm, training
from potluck.cli.base import app, complain
from potluck.types import NonFiniteError, PotluckError

__all__ = ["app", "joining", "main", "models", "replaying", "reproducing", "swarm", "training"]


@contextmanager
def _one_clear_line() -> Iterator[None]:
    """Whatever a user can mend ends in one line and an exit code, never in a traceback."""
    try:
        yield
    except NonFiniteError as error:
        complain(str(error))
        sys.exit(1)
    except (PotluckError, OSError) as error:  # of the system: a full disk, no permission
        complain(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        complain("stopped at once")
        sys.exit(130)


def main() -> None:
    with _one_clear_line():
        app()
