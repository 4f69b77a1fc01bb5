"""One node of a run, in a process of its own: the others are elsewhere."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from potluck.assemble import open_exchange, require_node_folder
from potluck.config import ConfigError, RunConfig
from potluck.exchange import Exchange, Terms
from potluck.launch.display import Display, RunResult, Silent
from potluck.launch.training import Part, take_part
from potluck.node import Progress


def join(
    config: RunConfig,
    name: str,
    folder: Path | str,
    *,
    resume: bool = False,
    display: Display | None = None,
    trust_code: bool = False,
    all_here: bool = False,
) -> RunResult:
    """Trains the node ``name`` of ``config`` together with nodes in other processes.

    Who joins late begins in the round that the others have come to; who was away goes on there.

    Args:
        folder: of the run; the node's own part of it, ``folder/name``, must not exist or be
            empty, unless ``resume``.
        all_here: whether the models of all nodes are on this machine, so that it can be said
            before the first round if they do not go together.

    Raises:
        PotluckError: one of its kinds, see ``types.py``; the message says what to do.
    """
    if name not in config.node:
        raise ConfigError(
            f"the run has no node {name!r}; it has {', '.join(config.node)}. A stranger to the "
            f"recipe names its own model"
        )
    folder, display = Path(folder), display or Silent()

    @contextmanager
    def meet(
        terms: Mapping[str, Terms], display: Display, progress: Progress
    ) -> Iterator[Mapping[str, Exchange]]:
        with open_exchange(config, name, terms[name], folder, display.say, progress) as exchange:
            absent = exchange.gather(
                config.swarm.gather_s, lambda came, all: progress(name, "wait", came, all)
            )
            if absent:
                display.say(f"{name} begins without {', '.join(absent)}")
            yield {name: exchange}

    part = Part(
        config,
        (name,),
        all_here=all_here,
        look=lambda: require_node_folder(folder, config, name, resume),
        meet=meet,
    )
    return take_part(part, folder, resume=resume, display=display, trust_code=trust_code)
