"""A whole run in one process: every node of the recipe, phase by phase.

One thread, so the same recipe gives the same numbers, and a debugger can follow it.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from potluck.assemble import require_folder
from potluck.config import RunConfig
from potluck.exchange import Exchange, MemoryHub, Terms
from potluck.launch.display import Display, RunResult, Silent
from potluck.launch.training import Part, take_part
from potluck.node import Progress


def run(
    config: RunConfig,
    folder: Path | str,
    *,
    resume: bool = False,
    display: Display | None = None,
    trust_code: bool = False,
) -> RunResult:
    """Trains every node of ``config`` together, in ``folder``.

    Args:
        folder: must not exist or be empty, unless ``resume``.
        resume: goes on from the newest checkpoint that all nodes have. On the same
            machine, torch and thread count, the whole run then equals an
            uninterrupted one to the bit.
        trust_code: whether functions that ``[[reward]]`` names may be imported and run.

    Raises:
        PotluckError: one of its kinds, see ``types.py``; the message says what to do.
    """

    def meet(
        terms: Mapping[str, Terms], display: Display, progress: Progress
    ) -> AbstractContextManager[Mapping[str, Exchange]]:
        hub = MemoryHub(terms, codec=config.swarm.codec)
        return nullcontext({name: hub.member(name) for name in terms})

    folder = Path(folder)
    part = Part(
        config,
        tuple(config.node),
        all_here=True,
        look=lambda: require_folder(folder, config, resume),
        meet=meet,
    )
    return take_part(
        part, folder, resume=resume, display=display or Silent(), trust_code=trust_code
    )
