"""The app: where it prints, and commands of other distributions."""

import logging
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated

import typer
from rich.console import Console

from potluck.collector import without_collector
from potluck.files import is_of_no_reader, printable, write_nowhere
from potluck.types import NonFiniteError, PotluckError
from potluck.version import __version__

# A text that is no number is refused by ``main``, in a line: here an error would be a traceback.
_size = os.environ.get("WORLD_SIZE", "")
TEAM = _size.isdecimal() and int(_size) > 1
"""True: torchrun started this process and others, which together are one node."""
# Of several processes that are one run (docs/memory.md) the first one speaks for all.
MUTE = TEAM and os.environ.get("RANK", "0") != "0"


class RunConsole(Console):
    """Console whose reader may go away (``| head``, a terminal that is closed): a run that goes on
    then saves and ends, as after SIGTERM; any other command ends at once."""

    has_asked = False
    """True: some console of this process has asked the run to end; twice would mean "at once"."""

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError as error:
            if not is_of_no_reader(error):
                raise
            self.on_broken_pipe()  # which rich itself does for a pipe alone

    def on_broken_pipe(self) -> None:
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and not RunConsole.has_asked:
            super().on_broken_pipe()
        self.quiet = True
        write_nowhere(self.file)
        if not RunConsole.has_asked:
            RunConsole.has_asked = True
            os.kill(os.getpid(), signal.SIGTERM)


out = RunConsole(highlight=False, emoji=False, quiet=MUTE)
err = RunConsole(stderr=True, highlight=False, emoji=False, quiet=MUTE)

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _tell_version(wanted: bool) -> None:
    if wanted:
        out.print(f"potluck {__version__}", markup=False)
        raise typer.Exit


@app.callback()
def _potluck(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version"),
    ] = False,
) -> None:
    """Collaborative GRPO for language models that differ."""


def say(text: str) -> None:
    """Print a line on stdout, as text whatever it holds; whole, so that it can be copied."""
    out.print(printable(text, limit=2000), markup=False, soft_wrap=True)


def complain(text: str) -> None:
    err.print(f"potluck: {printable(text, limit=2000)}", markup=False, soft_wrap=True)


def exit_code(error: PotluckError | OSError) -> int:
    """Choose the exit code: 1 where something broke down, 2 where its user can mend it."""
    return 1 if isinstance(error, NonFiniteError) else 2


@contextmanager
def stoppable(text: str) -> Iterator[None]:
    """End the command with ``text`` and code 130 at Ctrl-C, at which typer would end in silence."""
    try:
        yield
    except KeyboardInterrupt:
        complain(text)
        raise typer.Exit(130) from None


@contextmanager
def loading_libraries(console: Console) -> Iterator[None]:
    """Say on a terminal that the block imports large libraries, and have it do so in less time."""
    with console.status("loading torch and transformers ..."), without_collector():
        yield


def refuse_torchrun(what: str) -> None:
    """Raise PotluckError where several processes would each start the same runs."""
    if TEAM:
        raise PotluckError(
            f"{what} starts runs of its own, and torchrun started several processes of this one; "
            f"call it without torchrun, where one process holds the model, or drop it"
        )


def refuse_ranks_that_are_no_numbers() -> None:
    """Raise PotluckError where a variable of torchrun's holds something else than a number."""
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        value = os.environ.get(name, "")
        if value and not value.isdecimal():
            raise PotluckError(
                f"the environment has {name} = {value!r}; expected a whole number, as torchrun "
                f"sets it, or no such variable: unset {name}"
            )


def prepare_process(threads: int) -> None:
    """Set what must be in the environment before torch is imported."""
    quiet = {
        # Threads that spin while they wait cost more than anything else on a busy machine.
        "GOMP_SPINCOUNT": "0",
        "OMP_WAIT_POLICY": "passive",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_VERBOSITY": "error",  # its retries; what comes of them is said
    }
    os.environ.update({key: value for key, value in quiet.items() if key not in os.environ})
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    # It looks for kernels of 4-bit weights, which no model here has, and says so at every start.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


def add_commands(app: typer.Typer, found: Iterable[EntryPoint] | None = None) -> None:
    """Add the installed commands; one that is broken says so in a line when used."""
    for entry in entry_points(group="potluck.commands") if found is None else found:
        try:
            app.command(entry.name)(entry.load())
        except Exception as error:  # of others' code: it must not break our commands
            _add_refusal(app, entry, error)


def _add_refusal(app: typer.Typer, entry: EntryPoint, error: Exception) -> None:
    broken = f"{entry.value} cannot be loaded"
    message = (
        f"'potluck {entry.name}' is broken: {broken} ({type(error).__name__}: {error}); "
        f"install its distribution again, or remove it"
    )

    def refuse(words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        raise PotluckError(message)

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command(entry.name, help=f"Broken: {broken}.", context_settings=settings)(refuse)
