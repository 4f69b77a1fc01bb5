"""Finished cells on disk: a line each, in ``cells/SCALE/FAMILY.jsonl``.

A line is added at the end and never changed: a cell that is run again has a later line, which
counts. A cell whose recipe is another one now counts as never run.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from itertools import count, product
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from potluck import PotluckError
from potluck_experiments.cells import CellSpec, make_cell, name_of
from potluck_experiments.suite import ExperimentError, Scale, Suite

MOST_BYTES = 1_000_000  # Of a line; with 1,000 rounds and four models it has 150,000
LATER = (
    *("others_taken", "others_silenced"),
    *("entropy", "length", "commonest", "groups_alike", "unreadable"),
)
"""Curves that older cells lack."""
OPTIONAL = (*LATER, "notations", "pass_at_8", "others_k1", "others_likelihood")
Fraction = Annotated[float, Meta(ge=0, le=1)]
Quantity = Annotated[float, Meta(ge=0, le=1e12)]  # beyond any run, so that sums stay finite
IDENTITY = ("scale", "family", "models", "setting", "seed")  # as the CellSpec has them


class NotationCurve(Struct, frozen=True, array_like=True):
    """The answers of a model in one notation, by round. In the file [written, right]."""

    written: tuple[Annotated[int, Meta(ge=0)], ...]
    right: tuple[Annotated[int, Meta(ge=0)], ...]  # Those of them that earn a reward


class NodeResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model's curves. Accuracies 0..1."""

    eval_rounds: tuple[int, ...]
    greedy: tuple[Fraction, ...]  # On the validation problems, at each of ``eval_rounds``
    out_of_distribution: Fraction
    """Greedy, at the end. What follows is by round:"""
    sampled: tuple[Fraction, ...]  # Mean reward of the completions that this model wrote
    tokens: tuple[Annotated[int, Meta(ge=0, le=10**12)], ...]
    seconds: tuple[Quantity, ...]  # Wall time of writing and learning
    filtered_share: tuple[Fraction, ...]
    """Share of the completions with an advantage that the filter silenced."""
    base: str  # Digest of the model's weights at the start; for a model of the Hub its name
    pass_at_8: Fraction | None = None
    """At the end, the first 100 validation problems. None: the cell is older than this."""
    others_k1: float | None = None
    """k1 of the others' successes here, nats a token; None: they came without log-probabilities."""
    others_likelihood: float | None = None  # Mean P of the others' successes here, 0..1
    others_taken: tuple[Quantity | None, ...] = ()
    """Mean weight of their successes by round, the mean over authors; None: there was none;
    empty: nothing was taken, or the cell is older."""
    others_silenced: tuple[Fraction | None, ...] = ()
    """Share of their successes that the habit test silenced, by round; empty: none."""
    entropy: tuple[Quantity | None, ...] = ()
    """Mean entropy of the tokens that it learned from, in nats, by round; None: of none. This and
    what follows is empty in older cells."""
    length: tuple[Quantity | None, ...] = ()  # Mean length of its own completions, in tokens
    commonest: tuple[Fraction | None, ...] = ()
    """Share of its own completions that are its commonest answer."""
    groups_alike: tuple[Fraction | None, ...] = ()  # Share of groups in which all earned the same
    unreadable: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    """Others' completions that were left out, for any reason."""
    notations: Mapping[str, NotationCurve] = msgspec.field(default_factory=dict)
    """What this model wrote, by notation; empty: its task has none, or the cell is older."""


class CellResult(Struct, frozen=True, kw_only=True):
    """One finished cell."""

    scale: Scale
    family: str
    models: tuple[str, ...]
    setting: str
    seed: int
    recipe: str  # Digest, see CellSpec
    commit: str = ""  # Commit of the code when the run began
    uncommitted: tuple[str, ...] = ()  # Files of the package that differed from that commit
    machine: str
    torch: str
    cpu_s: Quantity  # Core time of the whole run, evaluations included: the run has one thread
    node: Mapping[str, NodeResult]

    @property
    def name(self) -> str:
        """Name of its cell."""
        return name_of(self.family, self.models, self.setting, self.seed)


def cell_file(folder: Path, scale: Scale, family: str) -> Path:
    """Return the place of a family's finished cells, below ``experiments/``."""
    return folder / "cells" / scale / f"{family}.jsonl"


def read_result(folder: Path, cell: CellSpec) -> CellResult | None:
    """Read the cell's result; None if it was not run, or its recipe was another one then."""
    path = cell_file(folder, cell.scale, cell.family)
    line = read_lines(path).get((cell.name, cell.digest))
    if line is None:
        return None
    if wrong := next(_problems(line.result, cell), ""):
        raise ExperimentError(_told(path, line.number, "cannot use", wrong))
    return line.result


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file, and the cell that it tells of."""

    number: int  # From 1
    text: bytes
    result: CellResult


Lines = Mapping[tuple[str, str], Line]
"""The lines of a file that count, by the cell's name and the digest of its recipe."""


def read_lines(path: Path) -> Lines:
    """Read the finished cells of a file, of which there may be none. Raises ExperimentError: the
    file or a line cannot be read."""
    try:
        about = path.stat()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ExperimentError(f"cannot read {path}: {error}") from None
    version = about.st_mtime_ns, about.st_size
    if path not in _READ or _READ[path][0] != version:
        _READ[path] = version, _lines_of(path)
    return _READ[path][1]


_READ: dict[Path, tuple[tuple[int, int], Lines]] = {}
"""Time and size of each file when it was read, and its lines."""


def _lines_of(path: Path) -> Lines:
    found: dict[tuple[str, str], Line] = {}
    for number, text in enumerate(_texts(path), start=1):
        if not text.strip():
            continue
        if not text.endswith(b"\n") and not _is_whole(text):
            break  # Its writer was killed
        try:
            result = msgspec.json.decode(text, type=CellResult)
            if (result.scale, result.family) != (path.parent.name, path.stem):
                raise ValueError(f"it is a cell of {result.scale}, {result.family}")
        # MsgspecError is a ValueError; RecursionError: brackets, thousands deep.
        except (ValueError, RecursionError) as error:
            raise ExperimentError(_told(path, number, "cannot read", str(error))) from None
        found[result.name, result.recipe] = Line(number, text, result)
    return found


def _texts(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            # A writer may cut off half a line, and put another one in its place.
            fcntl.flock(file, fcntl.LOCK_SH)
            for number in count(1):
                text = file.readline(MOST_BYTES + 1)
                if len(text) > MOST_BYTES:
                    wrong = f"it is larger than {MOST_BYTES:,} bytes"
                    raise ExperimentError(_told(path, number, "cannot read", wrong))
                if not text:
                    return
                yield text
    except OSError as error:
        raise ExperimentError(f"cannot read {path}: {error}") from None


def _is_whole(text: bytes) -> bool:
    """Tell if a last line without an end lacks nothing else, as an editor may leave it."""
    try:
        msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _told(path: Path, number: int, cannot: str, why: str) -> str:
    return f"{cannot} {path}, line {number}: {why}; remove the line to run its cell again"


def add_results(path: Path, lines: Iterable[bytes]) -> None:
    """Add lines to a file in one write. Other processes may do so at the same time. Raises
    ExperimentError, and adds nothing: a line is too large to be read again."""
    added = [line.rstrip(b"\n") + b"\n" for line in lines]
    if (largest := max(map(len, added), default=0)) > MOST_BYTES:
        raise ExperimentError(f"a cell for {path} has {largest:,} bytes, more than {MOST_BYTES:,}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = _end_last_line(file, path) + b"".join(added)
        if file.write(text) != len(text):
            raise OSError(f"{path} took a part of {len(text):,} bytes: is the disk full?")


def _end_last_line(file: FileIO, path: Path) -> bytes:
    """Return what the last line lacks, and cut off half a line: its writer was killed, as nobody
    else writes now."""
    end = file.seek(0, os.SEEK_END)
    begin = file.seek(max(0, end - MOST_BYTES))
    _, ended, last = file.read().rpartition(b"\n")
    if not last:
        return b""
    if begin and not ended:
        raise ExperimentError(f"{path} ends in a line of more than {MOST_BYTES:,} bytes; remove it")
    if _is_whole(last):
        return b"\n"
    file.truncate(end - len(last))
    return b""


def require_lines(folder: Path) -> None:
    """Raise ExperimentError where cells are a file each, as they once were: nobody reads them."""
    old = [file for file in folder.glob("cells/*/*.json") if file.name != "progress.json"]
    if old:
        raise ExperimentError(
            f"{folder}/cells has {len(old)} cells in a file each, such as {old[0].name}, as it was "
            f"once; add each file's line to its family's, cells/SCALE/FAMILY.jsonl, and remove the "
            f"file"
        )


@dataclass(frozen=True, slots=True)
class Joined:
    """What came of joining the cells of another folder: names of cells."""

    added: list[str]
    differ: list[str]
    """Those that are in both with other numbers; those that were here stay."""
    of_other_recipes: list[str]
    """Those that count for nothing here, and were left out."""


def join(suite: Suite, other: Path) -> Joined:
    """Add the finished cells of another folder's ``cells/`` that are not here and count here.

    Raises ExperimentError, and changes nothing: a line cannot be read, or a cell of the other
    folder began from another model than those of the same name here.
    """
    require_lines(other)
    if not (other / "cells").is_dir():
        raise ExperimentError(f"{other} has no cells/; name the experiments/ of another clone")
    added: dict[Path, list[Line]] = {}
    joined = Joined([], [], [])
    for theirs in sorted((other / "cells").glob("*/*.jsonl")):
        here = suite.folder / "cells" / theirs.parent.name / theirs.name
        known = {key: line for key, line in read_lines(here).items() if _counts(suite, line)}
        bases = _bases_of(known.values())
        for key, line in read_lines(theirs).items():
            name = line.result.name
            if key in known:
                if _differ(line.result, known[key].result):
                    joined.differ.append(name)
            elif not _counts(suite, line):
                joined.of_other_recipes.append(name)
            else:
                _require_same_bases(bases, line, theirs)
                bases |= _bases_of([line])
                added.setdefault(here, []).append(line)
                joined.added.append(name)
    for here, lines in added.items():
        add_results(here, (line.text for line in lines))
    return joined


def _counts(suite: Suite, line: Line) -> bool:
    """Tell if the line's recipe is that of its cell now."""
    it = line.result
    try:
        cell = make_cell(suite, it.scale, it.family, it.models, it.setting, it.seed)
    except (PotluckError, KeyError):  # of a model or a setting that is not here
        return False
    return cell.digest == it.recipe


def _differ(one: CellResult, other: CellResult) -> bool:
    """Tell if two results of a cell differ in anything but how busy the machine was, and what an
    older one lacks."""
    if one.node.keys() != other.node.keys():
        return True
    fields = [name for name in NodeResult.__struct_fields__ if name != "seconds"]
    pairs = [
        (getattr(one.node[model], name), getattr(other.node[model], name), name)
        for model, name in product(one.node, fields)
    ]
    return any(a != b for a, b, name in pairs if name not in OPTIONAL or (a and b))


def _bases_of(lines: Iterable[Line]) -> dict[str, str]:
    return {name: node.base for line in lines for name, node in line.result.node.items()}


def _require_same_bases(bases: Mapping[str, str], line: Line, theirs: Path) -> None:
    for name, node in line.result.node.items():
        if node.base != bases.get(name, node.base):
            raise ExperimentError(
                f"{theirs}, line {line.number}: {name} began from another model ({node.base}) than "
                f"in the cells beside it ({bases[name]}), so they cannot be compared; nothing was "
                f"joined"
            )


def _problems(found: CellResult, cell: CellSpec) -> Iterator[str]:
    """Yield the reasons why this cannot be the cell's result: files may be made by hand."""
    for name in IDENTITY:
        if getattr(found, name) != getattr(cell, name):
            yield f"{name} is {getattr(found, name)!r:.80}, expected {getattr(cell, name)!r}"
    if set(found.node) != set(cell.models):
        yield f"its nodes are {sorted(found.node)!r:.80}, expected {sorted(cell.models)}"
    rounds = cell.recipe.get("rounds") or cell.config.rounds
    for model, node in found.node.items():
        for name in ("sampled", "tokens", "seconds", "filtered_share"):
            if (its := len(getattr(node, name))) != rounds:
                yield f"{model}: {name} has {its} rounds, expected {rounds}"
        later = {name: getattr(node, name) for name in LATER}
        for notation, curve in node.notations.items():
            later |= {f"{notation} written": curve.written, f"{notation} right": curve.right}
        for name, values in later.items():  # older cells have none
            if values and len(values) != rounds:
                yield f"{model}: {name} has {len(values)} rounds, expected {rounds}"
        at = node.eval_rounds
        if len(at) != len(node.greedy):
            yield f"{model}: greedy has {len(node.greedy)} values at {len(at)} eval_rounds"
        if list(at) != sorted({*at}) or not at or at[0] < 0 or at[-1] != rounds:
            yield f"{model}: eval_rounds is {list(at)!r:.80}, expected to rise from 0 to {rounds}"
