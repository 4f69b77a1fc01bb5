"""Nodes in this process: all of a recipe, phase by phase, or one that meets the others.

One thread, so the same recipe gives the same numbers, and a debugger can follow it.
"""

import atexit
import shlex
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from os import environ
from pathlib import Path
from typing import Any, Literal, overload

from rich.console import Console

from potluck.builder.consent import require_consent, require_consent_to_buckets
from potluck.builder.exchange import open_exchange, rule_of
from potluck.builder.objective import called
from potluck.builder.prepare import pinned
from potluck.builder.task import require_trusted
from potluck.config import AnyRecipe, ConfigError, as_config
from potluck.exchange import Agreement, Exchange, MemoryHub
from potluck.exchange.memory import KEPT_ROUNDS
from potluck.files import one_line
from potluck.launch.children import STOP
from potluck.launch.nodes import LocalNodes, run_nodes
from potluck.launch.rounds import RunResult
from potluck.node.participant import NodeProgress
from potluck.node.storage.record import Record
from potluck.node.storage.resume import first_round
from potluck.reports.events import Display, Event, Fanout, Notice, PhaseProgress
from potluck.show.notebook import open_display
from potluck.show.terminal.live import Watched
from potluck.tasks.rewards import HANDED, hand_over, load_function
from potluck.types import PotluckError

Shown = Display | str | None
Callbacks = Sequence[Callable[[Event], object]]
GivenReward = Callable[..., Any] | str
Rewards = Sequence[GivenReward | tuple[GivenReward, float]]
"""Functions, or names as in ``[[reward]] function``; some with their weights."""


class BackgroundRun(Future[RunResult]):
    """A run in a thread: a Future that can be stopped, and is at the program's end."""

    def __init__(self, work: Callable[[], RunResult]) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()  # so that ``cancel`` says that it cannot
        self._stop, context = threading.Event(), copy_context()  # a notebook's output hangs on it
        context.run(STOP.set, self._stop)
        context.run(HANDED.set, HANDED.get().copy())
        thread = threading.Thread(target=context.run, args=(self._run, work), daemon=True)
        thread.start()

        @atexit.register
        def end() -> None:
            self.stop()
            thread.join()

    def _run(self, work: Callable[[], RunResult]) -> None:
        try:
            self.set_result(work())
        except BaseException as error:  # raised where the result is asked for
            self.set_exception(error)

    def stop(self) -> None:
        """Ask it to stop, as Ctrl-C does: it saves a checkpoint, and ``resume`` goes on."""
        self._stop.set()

    def result(self, timeout: float | None = None) -> RunResult:
        """Wait for the end; Ctrl-C stops the run. Raise what it raised, or TimeoutError."""
        try:
            return super().result(timeout)
        except KeyboardInterrupt:
            self.stop()
            return super().result()


class Callback:
    """Display that calls a user's function with each event but progress. If it raises, ConfigError
    ends the run: without its alarm, or its early stopping, it is not what was asked."""

    def __init__(self, function: Callable[[Event], object]) -> None:
        self._function, self._name = function, getattr(function, "__name__", repr(function))

    def show(self, event: Event) -> None:
        if not isinstance(event, PhaseProgress):
            called(f"callback {self._name}", self._function, event)


@overload
def run(
    config: AnyRecipe, folder: Path | str | None = None, *, rewards: Rewards = (),
    resume: bool = False, display: Shown = "auto", callbacks: Callbacks = (),
    background: Literal[False] = False, trust_code: bool = False, allow_keys: Collection[str] = (),
) -> RunResult: ...  # fmt: skip
@overload
def run(
    config: AnyRecipe, folder: Path | str | None = None, *, rewards: Rewards = (),
    resume: bool = False, display: Shown = "auto", callbacks: Callbacks = (),
    background: Literal[True], trust_code: bool = False, allow_keys: Collection[str] = (),
) -> BackgroundRun: ...  # fmt: skip


def run(
    config: AnyRecipe,
    folder: Path | str | None = None,
    *,
    rewards: Rewards = (),
    resume: bool = False,
    display: Shown = "auto",
    callbacks: Callbacks = (),
    background: bool = False,
    trust_code: bool = False,
    allow_keys: Collection[str] = (),
) -> RunResult | BackgroundRun:
    """Train every node of ``config`` together. Raise PotluckError, of a kind in ``types.py``.

    Args:
        config: a run, a recipe's path, or its tables as nested dicts.
        folder: must not exist or be empty, unless ``resume``; None: ``runs/NAME``.
        rewards: functions, trusted, some as (function, weight), in place of ``[[reward]]``.
        resume: goes on from the newest checkpoint that all nodes have. On the same CPU, with the
            same torch and thread count, the run then equals an uninterrupted one to the bit.
        display: "auto": a curve in a notebook, elsewhere what the command shows; or a name of
            ``--display``, None, or an object with ``show(event)``.
        callbacks: functions of an event; one that raises ends the run.
        background: whether to return at once, with a BackgroundRun. Relative paths in the recipe
            are of the directory that is the current one when it reads them.
        trust_code: whether functions that the recipe names may be imported and run, and its
            secrets be sent.
        allow_keys: secrets that may be sent, ``"VARIABLE=HOST"``; those of a run are remembered.
    """
    config = pinned(as_config(config, _tables(rewards)))
    folder = Path(folder or Path("runs") / config.name)
    folder = folder.absolute() if background else folder  # the program may go to another one

    def meet(
        agreements: Mapping[str, Agreement], display: Display, progress: NodeProgress
    ) -> AbstractContextManager[Mapping[str, Exchange]]:
        received = {
            name: Record(folder / name, run=config.name, node=name).batches(KEPT_ROUNDS)
            for name in agreements
            if resume and config.pace == "free"  # in step all is sent and collected in one round
        }
        hub = MemoryHub(
            agreements, codec=config.swarm.codec, rule=rule_of(config, taken={}), received=received
        )
        return nullcontext({name: hub.member(name) for name in agreements})

    local = LocalNodes(
        config, tuple(config.node), folder, resume, meet, is_whole=True, all_here=True,
        trust_code=trust_code,
    )  # fmt: skip
    if resume:
        local.check_folder()  # before the consent is noted in it
    require_consent(config, config.node, folder, allow_keys, trust_code)
    work = partial(_run_shown, local, display, callbacks)
    return BackgroundRun(work) if background else work()


def join(
    config: AnyRecipe,
    name: str,
    folder: Path | str | None = None,
    *,
    resume: bool = False,
    display: Shown = "auto",
    trust_code: bool = False,
    allow_keys: Collection[str] = (),
    all_here: bool = False,
    watches_status: bool = False,
) -> RunResult:
    """Train the node ``name`` of ``config`` together with nodes in other processes, as ``run``.
    If it joins late, or was away, it goes on in the round that the others have come to.

    Args:
        folder: of the run; the node's own part of it, ``folder/name``, must not exist or be
            empty, unless ``resume``.
        all_here: whether the models of all nodes are on this machine, so that it can be said
            before the first round if they do not go together.
        watches_status: whether the node listens to what others tell of themselves, for a page.
    """
    config = as_config(config)
    if name not in config.node:
        raise ConfigError(
            f"the run has no node {name!r}; it has {', '.join(config.node)}. A stranger to the "
            f"recipe names its own model"
        )
    folder, config = Path(folder or Path("runs") / config.name), pinned(config)

    @contextmanager
    def meet(
        agreements: Mapping[str, Agreement], display: Display, progress: NodeProgress
    ) -> Iterator[Mapping[str, Exchange]]:
        with open_exchange(
            config, name, agreements[name], folder, display.show, progress,
            watches_status=watches_status,
        ) as exchange:  # fmt: skip
            absent = exchange.gather(
                config.swarm.gather_s, lambda came, all: progress(name, "wait", came, all)
            )
            if absent:
                display.show(Notice(f"{name} begins without {', '.join(absent)}"))
            yield {name: exchange}

    local = LocalNodes(
        config, (name,), folder, resume, meet, is_whole=False, all_here=all_here,
        trust_code=trust_code,
    )  # fmt: skip
    if resume:
        local.check_folder()  # before the consent is noted in it
    require_consent(config, [name], folder, allow_keys, trust_code)
    require_consent_to_buckets(config, allow_keys, trust_code)
    return _run_shown(local, display)


def _run_shown(local: LocalNodes, display: Shown, callbacks: Callbacks = ()) -> RunResult:
    # Of several processes that are one run (docs/memory.md) the first one speaks for all.
    console = Console(highlight=False, quiet=environ.get("RANK", "0") != "0")
    first = first_round(local.folder, local.mine) if local.resume else 0
    watched = Watched(console, local.config.end, first)
    with open_display(display, local.folder, watched) as shown:
        try:
            require_trusted(local.config, local.trust_code)
            if name := local.config.log.callback:
                callbacks = [*callbacks, load_function("[log] callback", name)[0]]
            result = run_nodes(local, Fanout([shown, *map(Callback, callbacks)]))
        except Exception as error:
            if STOP.get() is not None:  # in the background: nobody may ask for the result
                text = str(error) if isinstance(error, PotluckError) else repr(error)
                shown.show(Notice(f"the run failed: {one_line(text)}"))
            raise
        if local.config.control and not result.interrupted:
            place = shlex.quote(str(local.folder))
            how = f"potluck run {place}/recipe.json --out {place} --resume"
            shown.show(Notice(f"a command makes its control: {how}"))
        return result


def _tables(rewards: Rewards) -> list[dict[str, object]]:
    pairs = [each if isinstance(each, tuple) else (each, 1.0) for each in rewards]
    names = [each if isinstance(each, str) else hand_over(each) for each, _ in pairs]
    if len({*names}) < len(names):
        raise ConfigError(f"rewards are {', '.join(names)}; give each function its own name")
    return [{"function": n, "weight": w} for n, (_, w) in zip(names, pairs, strict=True)]
