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
    be had. In ``own-part`` a node's completions are compared with those of the whole group."""
    return [control for kind in config.control for control in _controls(config, kind)]


def _controls(config: RunConfig, kind: ControlKind) -> list[Control]:
    if len(config.node) < 2:
        raise ConfigError(f"control is {kind!r}, but the run has one node, so nothing is shared")
    if kind != "own-part":
        return [_control(kind, (name,), _by_itself(config, kind, name)) for name in config.learners]
    for name in sorted(config.node.keys() - config.learners.keys()):
        raise ConfigError(
            f"control 'own-part' would have [node.{name}] write all again; choose 'half' or 'alone'"
        )
    own = replace(config, objective=replace(config.objective, others="none"))
    return [_control(kind, tuple(config.node), own)]


def _by_itself(config: RunConfig, kind: ControlKind, name: str) -> RunConfig:
    node, problems, group = config.node[name], config.problems_per_round, config.group_size
    members = [each.weight for each in config.members.values()]
    part = 1 / (1 + config.taken) if config.pace == "free" else node.weight / sum(members)
    if kind == "half":
        group = round(group * part)
    elif kind == "half-problems":
        problems = max(1, round(problems * part))
    if group < 2:
        raise ConfigError(
            f"control 'half' leaves {name!r} groups of {group} of {config.group_size} completions, "
            f"and one has nothing to be compared with; raise group_size, or choose 'half-problems'"
        )
    return replace(
        config,
        node={name: replace(node, weight=1.0, stranger=False)},
        problems_per_round=problems,
        group_size=group,
        pace="together",
        intake=0.0,
        swarm=SwarmConfig(),
    )


def _control(kind: ControlKind, nodes: tuple[str, ...], changed: RunConfig) -> Control:
    label, group = _label(kind, changed), changed.log.group
    # Trackers take all of one group for one run, and a callback hears of one run.
    log = replace(changed.log, group=group and f"{group}.{label}", callback="")
    # It is made for the rounds of the run, however that ended: see ``launch/side_by_side.py``.
    name = f"{changed.name}.{label}"[:64]
    made = replace(changed, name=name, log=log, control=(), keep_best=False, stop_when=StopConfig())
    require_valid(made)
    return Control(kind, nodes, made)


def _label(kind: ControlKind, config: RunConfig) -> str:
    return ".".join([kind, *(config.node if len(config.node) == 1 else ())])
