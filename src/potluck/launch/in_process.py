"""Nodes in this process: all of a recipe, phase by phase, or one that meets the others.

One thread, so the same recipe gives the same numbers, and a debugger can follow it.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from potluck.builder.consent import require_consent, require_consent_to_buckets
from potluck.builder.exchange import open_exchange, rule_of
from potluck.builder.prepare import pinned
from potluck.config import ConfigError, RunConfig
from potluck.exchange import Agreement, Exchange, MemoryHub
from potluck.exchange.memory import KEPT_ROUNDS
from potluck.launch.rounds import LocalNodes, RunResult, run_nodes
from potluck.node.participant import NodeProgress
from potluck.node.storage.folder import JOINED
from potluck.node.storage.record import Record
from potluck.node.storage.resume import require_folder, require_node_folder
from potluck.reports.events import Display, Notice, PeerNews, Silent, Told


def run(
    config: RunConfig,
    folder: Path | str,
    *,
    resume: bool = False,
    display: Display | None = None,
    trust_code: bool = False,
    allow_keys: Collection[str] = (),
) -> RunResult:
    """Train every node of ``config`` together. Raise PotluckError, of a kind in ``types.py``.

    Args:
        folder: must not exist or be empty, unless ``resume``.
        resume: goes on from the newest checkpoint that all nodes have. On the same machine, torch
            and thread count, the whole run then equals an uninterrupted one to the bit.
        trust_code: whether functions that ``[[reward]]`` and ``[objective] loss`` name may be
            imported and run, and the recipe's secrets be sent.
        allow_keys: secrets that may be sent, ``"VARIABLE=HOST"``; those of a run are remembered.
    """

    folder, display, config = Path(folder), display or Silent(), pinned(config)

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

    check_folder, names = partial(require_folder, folder, config, resume), tuple(config.node)
    require_consent(config, names, folder, allow_keys, trust_code)
    folders = (folder, *(folder / name for name in names))
    local = LocalNodes(config, names, folders, check_folder, meet, True, trust_code)
    return run_nodes(local, folder, resume=resume, display=display)


def join(
    config: RunConfig,
    name: str,
    folder: Path | str,
    *,
    resume: bool = False,
    display: Display | None = None,
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
    if name not in config.node:
        raise ConfigError(
            f"the run has no node {name!r}; it has {', '.join(config.node)}. A stranger to the "
            f"recipe names its own model"
        )
    folder, display, config = Path(folder), display or Silent(), pinned(config)

    @contextmanager
    def meet(
        agreements: Mapping[str, Agreement], display: Display, progress: NodeProgress
    ) -> Iterator[Mapping[str, Exchange]]:
        def show(told: Told) -> None:
            display.show(told)
            match told:
                case PeerNews(kind="left", peer=peer) if not all_here:  # `potluck run` tells it
                    back = f"potluck join RUN/{peer}/{JOINED} --as {peer} --out RUN --resume"
                    display.show(Notice(f"if it did not mean to: on its machine, {back}"))

        agreement = agreements[name]
        with open_exchange(
            config, name, agreement, folder, show, progress, watches_status=watches_status
        ) as exchange:
            absent = exchange.gather(
                config.swarm.gather_s, lambda came, all: progress(name, "wait", came, all)
            )
            if absent:
                display.show(Notice(f"{name} begins without {', '.join(absent)}"))
            yield {name: exchange}

    check_folder = partial(require_node_folder, folder, config, name, resume)
    require_consent(config, [name], folder, allow_keys, trust_code)
    require_consent_to_buckets(config, allow_keys, trust_code)
    own = (folder / name,)  # others of the run may be here too
    local = LocalNodes(config, (name,), own, check_folder, meet, all_here, trust_code)
    return run_nodes(local, folder, resume=resume, display=display)
