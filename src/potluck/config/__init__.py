"""A run as data: one frozen tree, read from TOML, checked before anything heavy loads.

Only ``node`` and what builds on it read this room: the other rooms take plain arguments, so
each can be used without a run. It imports no torch.
"""

from potluck.config.kinds import ConfigError
from potluck.config.reading import as_tree, from_tree, load, read_tree
from potluck.config.run import (
    METHODS,
    EvaluationConfig,
    LogConfig,
    LoraConfig,
    Method,
    NodeConfig,
    ObjectiveConfig,
    RunConfig,
    SamplingConfig,
    ServerConfig,
)
from potluck.config.swarm import HERE, SwarmConfig, TlsConfig
from potluck.config.tasks import (
    TASKS,
    ChainConfig,
    DigitsConfig,
    Gsm8kConfig,
    HubConfig,
    JsonlConfig,
    Math500Config,
    ReasoningGymConfig,
    RewardConfig,
    TableConfig,
    TaskConfig,
)

__all__ = [
    "HERE",
    "METHODS",
    "TASKS",
    "ChainConfig",
    "ConfigError",
    "DigitsConfig",
    "EvaluationConfig",
    "Gsm8kConfig",
    "HubConfig",
    "JsonlConfig",
    "LogConfig",
    "LoraConfig",
    "Math500Config",
    "Method",
    "NodeConfig",
    "ObjectiveConfig",
    "ReasoningGymConfig",
    "RewardConfig",
    "RunConfig",
    "SamplingConfig",
    "ServerConfig",
    "SwarmConfig",
    "TableConfig",
    "TaskConfig",
    "TlsConfig",
    "as_tree",
    "from_tree",
    "load",
    "read_tree",
]
