"""From TOML (or JSON) to one frozen tree; a wrong key or value is refused with a hint."""

import difflib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct

from potluck.config.kinds import ConfigError
from potluck.config.run import METHODS, Method, ObjectiveConfig, RunConfig
from potluck.config.sense import require_sense
from potluck.config.tasks import TASKS


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Reads a run from TOML, or from the recipe.json of a run folder.

    ``overrides`` are of the form ``"node.small.model=some/folder"``.

    Raises:
        ConfigError: no such file, not TOML (or JSON), or a key or value that no run has.
    """
    return from_tree(read_tree(path), overrides)


def read_tree(path: Path) -> Any:
    """What stands in a recipe, before it is looked at.

    Raises:
        ConfigError: no such file, or not TOML (or JSON).
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        return json.loads(text) if Path(path).suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"there is no recipe {path}; `potluck new {path}` writes one") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def from_tree(tree: dict[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """A run from nested dicts, as ``tomllib`` gives them; changes ``tree`` by ``overrides``.

    Raises:
        ConfigError: as ``load``.
    """
    if not isinstance(tree, dict):
        raise ConfigError(f"the recipe is {tree!r}; expected a table with a name and nodes")
    for override in overrides:
        _override(tree, override)
    run: RunConfig = _value(RunConfig, tree, "")
    require_sense(run)
    return run


def as_tree(run: RunConfig) -> dict[str, Any]:
    """The run with every default spelled out, as plain data for JSON."""
    tree: dict[str, Any] = msgspec.to_builtins(run, enc_hook=dict)
    return tree


def _value(kind: Any, value: Any, at: str) -> Any:
    """``value``, as TOML has it, as a ``kind``; ``at`` is where it stands, for the error."""
    if at in ("task", "out_of_distribution") and value is not None:
        return _task(value, at)
    if get_origin(kind) is UnionType:  # a table that need not be there
        if value is None:  # as JSON has it
            return None
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    if _is_struct(kind):
        return _table(kind, value, at)
    if get_origin(kind) is tuple and _is_struct(get_args(kind)[0]):
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{at} is {value!r}; expected one table for each, [[{at}]]")
        return tuple(_table(get_args(kind)[0], v, f"{at}.{i}") for i, v in enumerate(value))
    if get_origin(kind) is tuple and get_origin(get_args(kind)[0]) is Literal:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{at} is {value!r}; expected a list, such as [{value!r}]")
        return tuple(_value(get_args(kind)[0], v, at) for v in value)
    if get_origin(kind) is Mapping:
        (_, item) = get_args(kind)
        if not isinstance(value, dict):
            wanted = f"one table for each name, [{at}.NAME]" if _is_struct(item) else "a table"
            raise ConfigError(f"{at} is {value!r}; expected {wanted}")
        return MappingProxyType({k: _value(item, v, f"{at}.{k}") for k, v in value.items()})
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise ConfigError(f"{at} is {value!r}; choose one of {', '.join(get_args(kind))}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{at} is {value}; expected a finite number")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{at} is {value!r}: {error}") from None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _task(table: Any, at: str) -> Any:
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise ConfigError(f"[{at}] needs a name; choose one of {', '.join(TASKS)}")
    name, rest = table["name"], {k: v for k, v in table.items() if k != "name"}
    if name not in TASKS:
        raise ConfigError(f"{at}.name is {name!r}; {_hint(name, TASKS)}")
    return _table(TASKS[name], rest, at)


def _table(kind: type[Struct], table: Any, at: str) -> Struct:
    where, prefix = (f"[{at}]", f"{at}.") if at else ("the run", "")
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    if not isinstance(table, dict):
        raise ConfigError(f"{at} is {table!r}; expected a table with {', '.join(fields)}")
    if kind is ObjectiveConfig:
        table = _spelled_out(table, at)
    for key in table:
        if key not in fields:
            names = [*fields, "method"] if kind is ObjectiveConfig else fields
            raise ConfigError(f"{where} has no key {key!r}; {_hint(key, names)}")
    for key, field in fields.items():
        if field.required and key not in table:
            raise ConfigError(f"{where} needs {key!r}, which has no default")
    return kind(**{k: _value(fields[k].type, v, prefix + k) for k, v in table.items()})


def _spelled_out(table: dict[str, Any], at: str) -> dict[str, Any]:
    """``method`` replaced by the fields that it names; what contradicts it is refused."""
    if "method" not in table:
        return table
    method = _value(Method, table["method"], f"{at}.method")
    named, rest = METHODS[method], {k: v for k, v in table.items() if k != "method"}
    for key, value in named.items():
        if rest.get(key, value) != value:
            raise ConfigError(
                f"[{at}] method {method!r} means {key} = {value!r}, but {key} is {rest[key]!r}; "
                f"drop one of the two"
            )
    return named | rest


def _override(tree: dict[str, Any], override: str) -> None:
    key, equals, raw = override.partition("=")
    if not equals:
        raise ConfigError(f"{override!r} is not of the form key=value")
    *tables, last = key.split(".")
    for depth, name in enumerate(tables):
        # A table may be new, a node may not: a slip in its name would add a third one.
        if tables[:depth] == ["node"] and name not in tree:
            raise ConfigError(f"{override!r}: no node is named {name!r}; {_hint(name, tree)}")
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{override!r}: {name} is {tree!r}, which is no table")
    try:
        tree[last] = tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):
        tree[last] = raw


def _hint(key: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, names := list(names), n=1)
    return f"did you mean {near[0]!r}?" if near else f"there is {', '.join(names) or 'none'}"
