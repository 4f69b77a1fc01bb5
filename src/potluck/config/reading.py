"""A reader of TOML (or JSON) into one frozen tree; it refuses a wrong key or value with a hint."""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from potluck.config.places import place_hint
from potluck.config.run import NodeConfig, RunConfig
from potluck.config.validation import require_valid
from potluck.fields import ConfigError, hint
from potluck.files import unsealed
from potluck.objective.methods import METHODS, ObjectiveConfig

COMPLAINT = re.compile(r"(?P<text>.*?)(?: - at `\$(?P<path>\S*)`)?", re.DOTALL)
"""Sentence of msgspec and the place in the tree: ``$.node[...].weight``, with keys left out."""
STEP = re.compile(r"\w+|\.\.\.")
KEY = re.compile(r"Object (contains unknown|missing required) field `(.*)`", re.DOTALL)


AnyRecipe = RunConfig | Mapping[str, Any] | Path | str
"""A run, or what ``load`` and ``from_tree`` make one of: a file's path, or nested dicts."""


def as_config(recipe: AnyRecipe, reward: Sequence[Mapping[str, Any]] = ()) -> RunConfig:
    """Return the run that ``recipe`` is, graded by the tables ``reward`` if there are some; raise
    ConfigError as ``load`` does."""
    changed = {"reward": [*reward]} if reward else {}
    if isinstance(recipe, RunConfig):
        require_valid(recipe := replace(recipe, **changed))
        return recipe
    tree = read_tree(recipe) if isinstance(recipe, Path | str) else recipe
    return from_tree({**tree, **changed} if isinstance(tree, Mapping) else tree)


def load(path: Path | str, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a run from TOML or a run folder's recipe.json; ``overrides`` are ``"rounds=3"`` etc.
    Raise ConfigError for no such file, not TOML (or JSON), or a key or value that no run has."""
    return from_tree(read_tree(path), overrides)


def read_tree(path: Path | str) -> Any:
    """Read a recipe unchecked; a recipe.json of an older version gets today's keys. Raise
    ConfigError for no such file, or not TOML (or JSON)."""
    try:
        data, is_json = Path(path).read_bytes(), Path(path).suffix == ".json"
        return _renewed(unsealed(data)) if is_json else tomllib.loads(data.decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no recipe {path}; `potluck new {path}` writes one") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def _renewed(tree: Any) -> Any:
    """Move an old [node.NAME.server] of ``tree`` under its present key; and keep the rule by which
    a run of 0.2.0 learns from others, where defaults have changed since."""
    if isinstance(tree, dict) and isinstance(objective := tree.get("objective"), dict):
        tree["objective"] = {"weight": "likelihood", "habit_test": False} | objective
    nodes = tree.get("node") if isinstance(tree, dict) else None
    for node in nodes.values() if isinstance(nodes, dict) else ():
        if isinstance(node, dict) and "server" in node:
            server = node.pop("server")
            node |= {"engine": {"name": "vllm", **server}} if isinstance(server, dict) else {}
    return tree


def from_tree(tree: dict[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """Make a run of the dicts of ``tomllib``, changed by ``overrides``; raise as ``load`` does."""
    if not isinstance(tree, dict):
        raise ConfigError(f"the recipe is {tree!r}; expected a table with a name and nodes")
    for override in overrides:
        _override(tree, override)
    _require_finite(tree, "")
    spelled_out = _without_method(tree)
    try:
        run = msgspec.convert(spelled_out, RunConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(_sentence(str(error), spelled_out)) from None
    require_valid(run)
    return run


def as_tree(run: RunConfig) -> dict[str, Any]:
    """Return the run with every default spelled out, as plain data for JSON."""
    tree: dict[str, Any] = msgspec.to_builtins(run, enc_hook=dict)
    return tree


def _require_finite(value: Any, at: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{at} is {value}; expected a finite number")
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            _require_finite(inner, f"{at}.{key}" if at else str(key))


def _without_method(tree: dict[str, Any]) -> dict[str, Any]:
    """Replace ``method`` by the fields that it names; refuse what contradicts it."""
    if not isinstance(objective := tree.get("objective"), dict):
        return tree
    rest = {k: v for k, v in objective.items() if k != "method"}
    if "method" not in objective:
        parts = METHODS["lws"].fields.keys()
        if 0 < len(named := [key for key in parts if key in rest]) < len(parts):
            raise ConfigError(
                f"[objective] names {' and '.join(named)}, but {', '.join(parts)} say together "
                f"what is learned from others; name all of them, or a method instead"
            )
        return tree
    if (method := str(objective["method"]).lower()) not in METHODS:
        raise ConfigError(
            f"objective.method is {objective['method']!r}; choose one of {', '.join(METHODS)}"
        )
    for key, value in METHODS[method].fields.items():
        if rest.get(key, value) != value:
            raise ConfigError(
                f"[objective] method {method!r} means {key} = {value!r}, but {key} is "
                f"{rest[key]!r}; drop one of the two"
            )
    return tree | {"objective": METHODS[method].fields | rest}


def _sentence(complaint: str, value: Any) -> str:
    """Say msgspec's complaint about the tree ``value`` in a sentence with a way out."""
    found = COMPLAINT.fullmatch(complaint)
    assert found
    kind: Any = RunConfig
    key: Any
    at = ""
    for step in STEP.findall(found["path"] or ""):
        if _is_table(kind):
            inner, key = next(f.type for f in fields(kind) if f.name == step), step
        elif get_origin(kind) is Mapping:
            inner = get_args(kind)[1]
            key = next(name for name, item in value.items() if not _fits(item, inner))
        elif get_origin(kind) is tuple:
            inner, key = get_args(kind)[0], int(step)
        else:
            break
        value = value[key]
        if get_origin(kind) is not tuple or _is_table(inner):
            at = f"{at}.{key}" if at else str(key)
        kind = _chosen(inner, value)
    if (field := KEY.fullmatch(found["text"])) and get_origin(kind) is not UnionType:
        return _about_key(kind, field[2], at, is_missing=field[1].startswith("missing"))
    return _about_value(kind, value, at) or f"{at} is {value!r}: {found['text']}"


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _chosen(kind: Any, value: Any) -> Any:
    """Choose which of several types ``value`` should be; all of them if it does not say."""
    if get_origin(kind) is not UnionType:
        return kind
    kinds = [part for part in get_args(kind) if part is not NoneType]
    name = value.get("name") if isinstance(value, dict) else None
    named = [part for part in kinds if part.__struct_config__.tag == name] if name else []
    return kinds[0] if len(kinds) == 1 else (named or [kind])[0]


def _fits(value: Any, kind: Any) -> bool:
    try:
        return msgspec.convert(value, kind) is not None
    except msgspec.ValidationError:
        return False


def _about_key(kind: Any, key: str, at: str, *, is_missing: bool) -> str:
    where = f"[{at}]" if at else "the run"
    if is_missing:
        return f"{where} needs {key!r}, which has no default"
    if kind is NodeConfig and key == "server":
        return f"{where} has no key 'server' any more; its table is [{at}.engine], name = 'vllm'"
    names = [f.name for f in fields(kind)] + (["method"] if kind is ObjectiveConfig else [])
    return f"{where} has no key {key!r}; {place_hint(key, names, at) or hint(key, names)}"


def _about_value(kind: Any, value: Any, at: str) -> str:
    """Say what was expected instead of ``value``; empty: msgspec says it as well."""
    origin, inner, found = get_origin(kind), get_args(kind), f"{at} is {value!r};"
    if origin is UnionType:
        names = [part.__struct_config__.tag for part in inner if _is_table(part)]
        if isinstance(value, dict) and isinstance(name := value.get("name"), str):
            return f"{at}.name is {name!r}; {hint(name, names)}"
        return f"[{at}] needs a name; choose one of {', '.join(names)}"
    if origin is Literal:
        return f"{found} choose one of {', '.join(inner)}"
    if _is_table(kind):
        return f"{found} expected a table with {', '.join(field.name for field in fields(kind))}"
    if origin is Mapping:
        wanted = f"one table for each name, [{at}.NAME]" if _is_table(inner[1]) else "a table"
        return f"{found} expected {wanted}"
    if origin is Union:
        words = [repr(word) for part in inner for word in get_args(part) if isinstance(word, str)]
        return f"{found} expected a list, or {', '.join(words)}"
    if origin is tuple and ... not in inner:
        return f"{found} expected a list of {len(inner)}"
    if origin is tuple and _is_table(inner[0]):
        return f"{found} expected one table for each, [[{at}]]"
    return f"{found} expected a list, such as [{value!r}]" if origin is tuple else ""


def _override(tree: dict[str, Any], override: str) -> None:
    """Set the key in ``tree`` that ``override``, such as "rounds=3", names."""
    key, equals, raw = override.partition("=")
    if not equals:
        raise ConfigError(f"{override!r} is not of the form key=value")
    *tables, last = key.split(".")
    for depth, name in enumerate(tables):
        # A table may be new, a node may not: a slip in its name would add a third one.
        if tables[:depth] == ["node"] and name not in tree:
            raise ConfigError(f"{override!r}: no node is named {name!r}; {hint(name, tree)}")
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{override!r}: {name} is {tree!r}, which is no table")
    try:
        tree[last] = tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):
        tree[last] = raw
