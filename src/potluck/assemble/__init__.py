"""From a recipe to what it names: the task, the nodes, and a folder that is theirs."""

from potluck.assemble.folder import (
    first_round,
    go_on_from,
    require_folder,
    require_node_folder,
    require_same_task,
)
from potluck.assemble.nodes import make_learner, make_learners, make_nodes
from potluck.assemble.partners import (
    require_devices,
    require_one_prompt,
    require_one_stop,
    require_one_tokenizer,
    require_partners,
    require_room,
    require_servers,
    require_team,
)
from potluck.assemble.swarm import members_of, open_exchange, terms_of
from potluck.assemble.task import code_of, make_task, notes_on, require_problems

__all__ = [
    "code_of",
    "first_round",
    "go_on_from",
    "make_learner",
    "make_learners",
    "make_nodes",
    "make_task",
    "members_of",
    "notes_on",
    "open_exchange",
    "require_devices",
    "require_folder",
    "require_node_folder",
    "require_one_prompt",
    "require_one_stop",
    "require_one_tokenizer",
    "require_partners",
    "require_problems",
    "require_room",
    "require_same_task",
    "require_servers",
    "require_team",
    "terms_of",
]
