"""What many keys are, and the error of one that is not."""

from typing import Annotated

from msgspec import Meta

from potluck.types import PotluckError

Count = Annotated[int, Meta(ge=1)]
Amount = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]


class ConfigError(PotluckError, ValueError):
    """A configuration that cannot run; the message names the key and the way out."""
