"""Controls of a run: what its models learn without the others' completions.

A run by itself cannot say whether sharing helped: a model may have learned as much from what it
wrote itself. A control is the same recipe with the same seed but for what a node learns from.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from potluck.config.run import ControlKind, RunConfig, StopConfig, SwarmConfig
from potluck.config.validation import require_valid
from potluck.fields import ConfigError


@dataclass(frozen=True, slots=True)
class Control:
    """One run of a control, of one node or of all."""

    kind: ControlKind
    nodes: tuple[str, ...]
    """Nodes of the run that it is compared with."""
    config: RunConfig

    @property
    def folder(self) -> str:
        """Name of its folder in the run's; no node has a name with a dot."""
        return f"control.{_label(self.kind, self.config)}"


def controls_of(config: RunConfig) -> list[Control]:
    """List the runs of the controls that ``config.control`` names; raise ConfigError if one cannot
    be had.

    ``half`` and ``half-problems`` give a node what it writes in the run, its part of all
    completions: a smaller group of each problem, or whole groups of fewer problems. ``alone`` gives
    it all. In these a node is by itself. In ``own-part`` all are there, and each learns from its
    own completions only, compared with those of its whole group.
    """
    return [control for kind in config.control for control in _controls(config, kind)]


def _controls(config: RunConfig, kind: ControlKind) -> list[Control]:
    if len(config.node) < 2:
        raise ConfigError(f"control is {kind!r}, but the run has one node, so nothing is shared")
    if kind == "own-part":
        only_writes = [name for name in config.node if name not in config.learners]
        if only_writes:
            raise ConfigError(
                f"control 'own-part' would have [node.{only_writes[0]}] write everything once "
                f"more; choose 'half' or 'alone'"
            )
        objective = replace(config.objective, others="none")
        return [_control(config, kind, tuple(config.node), replace(config, objective=objective))]
    return [_of_one(config, kind, name) for name in config.learners]


def _of_one(config: RunConfig, kind: ControlKind, name: str) -> Control:
    node, part = config.node[name], _part(config, name)
    problems, group = config.problems_per_round, config.group_size
    if kind == "half":
        group = round(group * part)
    elif kind == "half-problems":
        problems = max(1, round(problems * part))
    if group < 2:
        raise ConfigError(
            f"control 'half' leaves {name!r} groups of {group} of {config.group_size} completions, "
            f"and one has nothing to be compared with; raise group_size, or choose 'half-problems'"
        )
    by_itself = replace(
        config,
        node={name: replace(node, weight=1.0, stranger=False)},
        problems_per_round=problems,
        group_size=group,
        pace="together",
        intake=0.0,
        swarm=SwarmConfig(),
    )
    return _control(config, kind, (name,), by_itself)


def _part(config: RunConfig, name: str) -> float:
    """Compute the node's part of the completions of a round, 0..1."""
    if config.pace == "free":
        return 1 / (1 + config.taken)
    members = [node.weight for node in config.node.values() if not node.stranger]
    return config.node[name].weight / sum(members)


def _control(
    config: RunConfig, kind: ControlKind, nodes: tuple[str, ...], changed: RunConfig
) -> Control:
    label, group = _label(kind, changed), config.log.group
    # Trackers take all of one group for one run, and a callback hears of one run.
    log = replace(config.log, group=group and f"{group}.{label}", callback="")
    # It is made for the rounds of the run, however that ended: see ``launch/side_by_side.py``.
    name = f"{config.name}.{label}"[:64]
    changed = replace(changed, name=name, log=log, control=(), keep_best=False)
    made = Control(kind, nodes, replace(changed, stop_when=StopConfig()))
    require_valid(made.config)
    return made


def _label(kind: ControlKind, config: RunConfig) -> str:
    """Name the control's kind, and its node if it has one."""
    return ".".join([kind, *(config.node if len(config.node) == 1 else ())])
