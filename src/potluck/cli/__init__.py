"""The command line.

Exit codes: 0 done; 1 something broke down (a number that is not finite, a node that was
killed, a check of the doctor's that failed); 2 something its user can mend, said in one line
and without a traceback; 130 ended by Ctrl-C.
"""

from potluck.search_path import leave_current_folder

leave_current_folder()  # before anything else is imported

import sys  # noqa: E402
from contextlib import suppress  # noqa: E402
from io import TextIOWrapper  # noqa: E402

from potluck.cli import comparing, models, swarm, training, watching  # noqa: E402
from potluck.cli.base import (  # noqa: E402
    add_commands,
    app,
    complain,
    exit_code,
    refuse_ranks_that_are_no_numbers,
)
from potluck.types import PotluckError  # noqa: E402

__all__ = ["app", "comparing", "main", "models", "swarm", "training", "watching"]


add_commands(app)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A console of Latin-1 or ASCII has no arrow: a sign in its place is better than no line.
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            with suppress(OSError):  # of a file that another process has closed, or moved
                stream.reconfigure(errors="replace")
    try:
        refuse_ranks_that_are_no_numbers()
        app(prog_name="potluck")
    except (PotluckError, OSError) as error:  # of the system: a full disk, no permission
        complain(str(error))
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        complain("stopped at once")
        sys.exit(130)
