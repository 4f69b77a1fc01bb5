"""A run as data: one frozen tree, read from TOML, checked before anything heavy loads.

Only ``node`` and what builds on it read this room: the others take plain arguments. Options of
a task or an engine stand beside it, in its room. Nothing here imports torch.
"""

from potluck.config.reading import AnyRecipe, as_config, as_tree, from_tree, load, read_tree
from potluck.config.run import (
    EvaluationConfig,
    LogConfig,
    LoraConfig,
    NodeConfig,
    RunConfig,
    SamplingConfig,
    StopConfig,
    SwarmConfig,
    TlsConfig,
)
from potluck.fields import ConfigError
from potluck.files import LOCAL_SWARM

__all__ = [
    "LOCAL_SWARM", "AnyRecipe", "ConfigError", "EvaluationConfig", "LogConfig", "LoraConfig",
    "NodeConfig", "RunConfig", "SamplingConfig", "StopConfig", "SwarmConfig", "TlsConfig",
    "as_config", "as_tree", "from_tree", "load", "read_tree",
]  # fmt: skip
