"""docs/reference: every key of a recipe and every metric, from where they are declared.

    make reference                 # or: python scripts/make_reference.py

A key's type, default and range come from its declaration, its meaning from the docstring below it.
tests/docs/test_site.py compares the files with what this makes: no key without a meaning.
"""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct

from potluck import reports
from potluck.config import RunConfig
from potluck.objective.methods import METHODS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
MADE = "<!-- Written by scripts/make_reference.py from the declarations. Do not edit. -->\n"
RECIPE = """\
# Every key of a recipe

A recipe is a TOML file. `potluck new swarm.toml` writes one with comments, and
`potluck run swarm.toml --check` reads it, names what is wrong with it and starts nothing. A key
that is left out has its default. Every key can be set on the command line too:
`--set sampling.temperature=0.8`, `--set node.small.learning_rate=1e-5`. The
[recipes to start from](../../recipes/README.md) are in `recipes/`.
"""
METRICS = """\
# Every metric

In each round a node writes a line of JSON into `<run>/<node>/metrics.jsonl`, and for each
evaluation one into `evaluation.jsonl`. [Trackers](../logging.md) show the same numbers;
`potluck show` and the [page](../watch.md) show a choice of them. Shares are 0 to 1, times are
seconds, sizes are bytes, logarithms are natural. Every number is one node's own view. `null` means
"not measured".
"""
PLAIN = {int: "integer", float: "number", str: "string", bool: "`true` or `false`"}
SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


class MissingText(Exception):
    """A key or a metric without a docstring."""


@cache
def docstrings(kind: type) -> dict[str, str]:
    """Return the docstring below each field of a class, those of its bases too."""
    found = {}
    for each in reversed(kind.__mro__):
        if not each.__module__.startswith("potluck"):
            continue
        (declared,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(declared, ast.ClassDef)
        for field, below in zip(declared.body, declared.body[1:], strict=False):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = text
    return found


def text_of(kind: type, name: str = "") -> str:
    """Return a field's docstring, or a class's, as one line of Markdown."""
    text = docstrings(kind).get(name, "") if name else (kind.__doc__ or "")
    text = text or help_of(kind, name)
    if not text.strip() or (not name and "__doc__" not in kind.__dict__):
        place = f"{kind.__module__}.{kind.__qualname__}" + (f".{name}" if name else "")
        raise MissingText(f"{place} has no docstring; the reference needs one below it")
    return as_markdown(text)


def help_of(kind: type, name: str) -> str:
    """Return the text of a statistic that has one beside its title."""
    stat = reports.stats_of(kind).get(name) if is_dataclass(kind) else None
    return stat.help if stat else ""


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown for a table; what it names as a file becomes a link.

    >>> as_markdown("A ``key``, |x| < 2: see docs/vllm.md.")
    'A `key`, \\\\|x\\\\| < 2: see [vllm.md](../vllm.md).'
    """
    text = re.sub(r"``(.*?)``", r"`\1`", " ".join(text.split())).replace("|", "\\|")
    text = re.sub(r"\bNone\b", "null", text)
    text = re.sub(r"(?<!`)(</?\w+>)+(?!`)", lambda found: f"`{found[0]}`", text)
    text = re.sub(r"`?\bdocs/([\w-]+\.md)`?", r"[\1](../\1)", text)
    return re.sub(r"`?\b((?:\w+/)*\w+\.py)\b`?", source_link, text)


def source_link(found: re.Match[str]) -> str:
    """Return a link to a module that a docstring names; a file of the user's stays as it is."""
    homes = [ROOT / "src/potluck" / found[1], *(ROOT / "src/potluck").glob(f"objective/{found[1]}")]
    for home in homes:
        if home.exists():
            return f"[{found[1]}](../../{home.relative_to(ROOT).as_posix()})"
    return found[0]


def kind_of(kind: Any) -> str:
    """Say in words what values a key takes.

    >>> from potluck.fields import Positive
    >>> kind_of(Positive)
    'number > 0'
    >>> kind_of(tuple[str, ...] | Literal["all"])
    'list of strings; or `"all"`'
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        signs = ((sign, getattr(inner[1], name)) for name, sign in SIGNS.items())
        bounds = ", ".join(f"{sign} {bound:g}" for sign, bound in signs if bound is not None)
        return f"{kind_of(inner[0])} {bounds}"
    if origin is Literal:
        return ", ".join(f'`"{value}"`' for value in inner)
    if origin in (Union, UnionType):
        return "; or ".join(kind_of(part) for part in inner if part is not NoneType)
    if origin is tuple:
        if inner[0] in PLAIN:
            return f"list of {PLAIN[inner[0]]}s"
        many = "" if ... in inner else f" {len(inner)}"
        return f"list of{many}: {kind_of(inner[0])}"
    return "table" if origin is not None else PLAIN[kind]


def value_of(default: Any) -> str:
    if default is NODEFAULT:
        return "required"
    if default is None:
        return "not given"
    if isinstance(default, Mapping):
        return "`{}`"
    return f"`{json.dumps(default)}`"


def tables_in(kind: Any) -> list[type[Struct]]:
    """Return the tables that a key stands for: one, or one for each name."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return [kind]
    if get_origin(kind) in (Union, UnionType, Mapping, tuple):
        return [table for part in get_args(kind) for table in tables_in(part)]
    return []


def rows(table: type[Struct]) -> Iterator[str]:
    """Yield the rows of a table's plain keys, those that no other table shares first."""
    hints = get_type_hints(table, include_extras=True)
    shared = [name for each in table.__bases__ for name in getattr(each, "__struct_fields__", ())]
    keys = zip(table.__struct_fields__, defaults_of(table), strict=True)
    for name, default in sorted(keys, key=lambda key: key[0] in shared):
        if not tables_in(hints[name]):
            kind, meaning = kind_of(hints[name]), text_of(table, name)
            cells = (f"`{name}`", meaning, kind, value_of(default))  # a phone shows the first two
            yield f"| {' | '.join(cells)} |"


def defaults_of(table: type[Struct]) -> list[Any]:
    given = table.__struct_defaults__
    return [NODEFAULT] * (len(table.__struct_fields__) - len(given)) + [*given]


def sections(table: type[Struct], at: str = "") -> Iterator[str]:
    """Yield the section of a table, then those of the tables in it."""
    listed = list(rows(table))
    if listed:
        yield "\n".join(["| key | meaning | value | default |", "|---|---|---|---|", *listed])
    for name, kind in get_type_hints(table, include_extras=True).items():
        if name not in table.__struct_fields__ or not (tables := tables_in(kind)):
            continue
        path = f"{at}.{name}".lstrip(".") + (".NAME" if get_origin(kind) is Mapping else "")
        title = f"[[{path}]]" if get_origin(kind) is tuple else f"[{path}]"
        yield f"## `{title}`"
        if name in docstrings(table) or len(tables) > 1:
            yield text_of(table, name)
        if name == "out_of_distribution":
            yield "It takes the keys of [`[task]`](#task)."
        elif len(tables) == 1:
            yield text_of(tables[0])
            yield from objective() if name == "objective" else ()
            yield from sections(tables[0], path)
        else:
            for each in tables:
                yield f'### `{title}` with `name = "{each.__struct_config__.tag}"`'
                yield text_of(each)
                yield from sections(each, path)


def objective() -> Iterator[str]:
    """Yield the names of ``method``, which is no field: it stands for three others."""
    yield (
        "`method` names a choice of `importance`, `filter` and `others`; a recipe gives the name "
        "or all three keys. Without either it is LWS."
    )
    listed = (
        f'| `"{name}"` | '
        + " | ".join(f"`{json.dumps(value)}`" for value in method.fields.values())
        for name, method in METHODS.items()
    )
    head = ["| `method` | `importance` | `filter` | `others` |", "|---|---|---|---|"]
    yield "\n".join([*head, *(f"{row} |" for row in listed)])


def metrics() -> Iterator[str]:
    kinds = {
        "A round: a line of `metrics.jsonl`": reports.RoundReport,
        "An author in a round: `sources.AUTHOR`": reports.AuthorReport,
        "A reward function in a round: `rewards.FUNCTION`": reports.RewardReport,
        "An evaluation: a line of `evaluation.jsonl`": reports.EvaluationReport,
    }
    for title, kind in kinds.items():
        yield f"## {title}"
        yield text_of(kind)
        hints = get_type_hints(kind)
        listed = [
            f"| `{name}` | {text_of(kind, name)}{shown_as(kind, name)} | {shape_of(hints[name])} |"
            for name in hints
        ]
        yield "\n".join(["| field | meaning | value |", "|---|---|---|", *listed])


def shown_as(kind: type, name: str) -> str:
    """Return a sentence with the name that ``potluck show`` gives a metric, if any."""
    stat = reports.stats_of(kind).get(name, reports.Stat())
    return f' `potluck show` calls it "{stat.name}".' if stat.format else ""


def shape_of(kind: Any) -> str:
    """Say in words what a metric holds.

    >>> shape_of(float | None), shape_of(Mapping[str, int])
    ('number or null', 'table of integers')
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return f"{shape_of(inner[0])} or null"
    if origin is tuple:
        return "list of names"
    if origin is not None:
        return f"table of {shape_of(inner[1]).removesuffix('s')}s"
    return PLAIN.get(kind, "table")


def pages() -> dict[str, str]:
    """Return the text of each page, by its name."""
    made = {"recipe.md": [RECIPE, *sections(RunConfig)], "metrics.md": [METRICS, *metrics()]}
    return {
        name: "\n\n".join([MADE.strip(), *(p.strip() for p in parts)]) + "\n"
        for name, parts in made.items()
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
