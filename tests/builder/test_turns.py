"""Models that cannot take turns are refused before a run of an environment, in one line."""

from types import SimpleNamespace

import pytest

import dialects
from potluck.builder.checks import require_turns
from potluck.model import ModelError


def test_only_a_task_with_an_environment_asks_for_models_that_take_turns():
    task = SimpleNamespace(ids=lambda split: ["p"], problem=lambda id: dialects.PROBLEM)
    policies = {"north": dialects.model("qwen"), "south": dialects.model("gemma")}
    require_turns(policies, task)
    task.environment = object()
    require_turns({"north": dialects.model("qwen")}, task)
    with pytest.raises(ModelError, match="'a/gemma' tells the model of no tools"):
        require_turns(policies, task)
