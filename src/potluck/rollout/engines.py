"""The list of engines. Imports no torch: a recipe is read by it."""

from typing import get_args

from potluck.rollout.options import EngineOptions, HFOptions, VllmOptions

AnyEngine = HFOptions | VllmOptions
"""The engines that a recipe can name: a new one is a file with its options, and a member here."""
ENGINES: dict[str, type[EngineOptions]] = {
    str(options.__struct_config__.tag): options for options in get_args(AnyEngine)
}
