"""Types that many options share, and the error of an option that is wrong."""

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated

from msgspec import Meta, Struct, ValidationError, convert, structs

from potluck.types import PotluckError

Count = Annotated[int, Meta(ge=1)]
Amount = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
fields = cache(structs.fields)
"""Fields of a kind of table; msgspec resolves their annotations anew each time."""


class ConfigError(PotluckError, ValueError):
    """A configuration that cannot run; the message names the key and the way out."""


def refuse(wrong: Mapping[str, object]) -> None:
    """Raise ConfigError with the first message of ``wrong`` whose condition holds."""
    if why := next((why for why, is_so in wrong.items() if is_so), None):
        raise ConfigError(why)


def hint(key: str, names: Iterable[str]) -> str:
    """Return the way out of a wrong ``key``: the name that is spelled nearly so, or all names."""
    spelled = {name.lower(): name for name in names}
    if near := difflib.get_close_matches(key.lower(), spelled, n=1):
        return f"did you mean {spelled[near[0]]!r}?"
    return f"there is {', '.join(spelled.values()) or 'none'}"


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a recipe: frozen, and without keys that it does not declare."""

    def __post_init__(self) -> None:
        """Refuse values of a wrong type, by ConfigError, and make tables of dicts."""
        for name, kind in ((field.name, field.type) for field in fields(type(self))):
            try:
                structs.force_setattr(self, name, convert(value := getattr(self, name), kind))
            except ValidationError as error:
                said = str(error).replace("`$", f"`{name}")
                more = " (potluck.from_tree reads nested dicts)" if isinstance(value, dict) else ""
                at = f"{type(self).__name__}: {name} is {value!r:.80}"
                raise ConfigError(f"{at}; {said}{more}") from None
