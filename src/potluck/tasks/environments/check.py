"""The grade of an environment: processes play the same scripts, and all must say and pay the same.
What passes may differ where no script came: ``Completion.observed`` tells."""

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product, zip_longest
from os.path import commonprefix
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from potluck.episode import EnvironmentFailed, Grade, ToolCall, Turn
from potluck.files import derived_seed
from potluck.tasks.environments.host import EnvironmentKind, Process, Spec

TURNS, FIRST_TURNS, MOST_ROWS = 8, 16, 3
A_SECOND_S, TIME_S = 1.1, 3.0
"""The second is for scripts in the first process; those that it did not come to are left out."""
SHOWN = 60
"""Characters of what was said, where two of them part."""
FAILED = "the error was"
TEXTS = ("1", "up", "left", "a", "[0]", "[1]", "[up]", "[left]", "[1 2]", "2", "down", "0", "right")
"""Turns to try where a class names none."""
VALUES: Mapping[str, Sequence[Any]] = {
    "integer": (1, 0, 2, 3),
    "number": (1.0, 0.5, 2.0),
    "boolean": (True, False),
    "string": ("a", "1", "up", "left", "2", "crane"),
    "array": ([], [1], ["a"]),
    "object": ({},),
}
"""Arguments to try, by the type in a tool's schema."""
AGAIN: Mapping[str, Mapping[str, str]] = {
    "again a second later, without a network": {},  # finds clocks, and luck of its own
    "with another hash seed and time zone": {"PYTHONHASHSEED": "1", "TZ": "AAA+11:30"},
    "in another order, among steps of other episodes": {"PYTHONHASHSEED": "2", "TZ": "BBB-13:15"},
}
"""Playings that are compared with the first one, each with the variables of its process."""
LAST = [*AGAIN][-1]
MEANING: Mapping[Grade, str] = {
    "transcript": "it repeats, and the text earns the reward; others' episodes are learned from",
    "replay": "others' episodes are played again here, and learned from",
    "own": "it does not repeat, so others' episodes are not learned from",
}
SEEDS_WARNING = (
    "seeds change nothing, so all episodes of a row are one problem: let reset use its seed, or "
    "say that there is none with seeded = False in the class"
)
TURNS_WARNING = (
    "all turns that were tried got the same answer, so little is known: give some that it "
    "understands with --action, or as a list of texts named actions in the class"
)


class Checked(msgspec.Struct, frozen=True):
    """Result of the check of an environment."""

    kind: EnvironmentKind
    grade: Grade
    why: tuple[str, ...]
    """Lines on what was found; of grade "own" the first difference."""
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"grade {self.grade!r}: {MEANING[self.grade]}"


class Script(NamedTuple):
    row: Mapping[str, Any]
    seed: int
    turns: tuple[Turn, ...]


Playthrough = list[tuple[str, str]]
"""Places where a script was told something, with the text; last its reward, or a call's error."""


def check(
    spec: Spec,
    limits: tuple[float, int],
    rows: Sequence[Mapping[str, Any]] = ({},),
    actions: Sequence[str] = (),
) -> Checked:
    """Play the environment with ``rows`` and ``actions``, or else those that it names, and grade
    it. ``limits`` are those of a process. Raise EnvironmentFailed if no script can be played."""
    first = Process(replace(spec, offline=False), *limits, {})
    try:
        kind, tools, pays, _, named, is_seeded = first.call("about")
        turns = [turn_of(text) for text in actions or named] or probes(tools)
        scripts = [*_scripts(turns, rows[:MOST_ROWS])]
        begun, told = time.monotonic(), list[Playthrough]()
        while len(told) < len(scripts) and (len(told) < 4 or time.monotonic() < begun + TIME_S):
            told.append(_told(first, scripts[len(told)]))
    finally:
        first.end()
    if all(each[-1][0] == FAILED for each in told):
        raise EnvironmentFailed(told[0][-1][1])
    time.sleep(max(0.0, begun + A_SECOND_S - time.monotonic()))

    def parted(how: str) -> str:
        process = Process(replace(spec, described=False), *limits, AGAIN[how])
        order = range(len(told))
        try:
            for i in reversed(order) if how == LAST else order:
                again = _told(process, scripts[i], scripts[i - 1] if how == LAST else None)
                if found := difference(told[i], again):
                    return f"{how}: {found}"
        finally:
            process.end()
        return ""

    with ThreadPoolExecutor(len(AGAIN)) as threads:
        if why := next(filter(None, threads.map(parted, AGAIN)), ""):
            return Checked(kind, "own", (why,))
    grade: Grade = "replay" if pays else "transcript"
    return Checked(kind, grade, *_remarks(scripts[: len(told)], told, is_seeded))


def turn_of(text: str) -> Turn:
    """Read a turn to try: a tool call if it is JSON of one, else what the model says."""
    with suppress(ValueError):
        match json.loads(text):
            case {"name": str(name), "arguments": dict(arguments)}:
                return Turn("", (ToolCall(name, arguments),))
    return Turn(text)


def probes(tools: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """Make turns up: calls with arguments of the types that the tools' schemas name, or texts."""
    calls = zip_longest(*(_calls(tool["function"]) for tool in tools))
    return [Turn("", (call,)) for some in calls for call in some if call] or [*map(Turn, TEXTS)]


def _calls(tool: Mapping[str, Any]) -> Iterator[ToolCall]:
    some: dict[str, Sequence[Any]] = {}
    for key, schema in tool["parameters"].get("properties", {}).items():
        some[key] = schema.get("enum") or VALUES.get(str(schema.get("type")), VALUES["string"])
    for i in range(max(map(len, some.values()), default=1)):
        yield ToolCall(tool["name"], {key: each[i % len(each)] for key, each in some.items()})


def _scripts(actions: Sequence[Turn], rows: Sequence[Mapping[str, Any]]) -> Iterator[Script]:
    """Begin with one action after the other, for each row and two seeds."""
    seeds = [derived_seed(f"check/{i}") for i in range(2)]
    for i in range(FIRST_TURNS):
        turns = (actions[i % len(actions)], *random.Random(i).choices(actions, k=TURNS - 1))
        yield from (Script(row, seed, turns) for row, seed in product(rows, seeds))


def _told(process: Process, script: Script, beside: Script | None = None) -> Playthrough:
    """Play a script, and ``beside`` it another one, turn by turn."""
    told = Playthrough()
    try:
        start, _ = process.call("play", 0, script.row, script.seed, [])
        told.append(("at reset it said", str(start)))
        for i, turn in enumerate(script.turns):
            with suppress(EnvironmentFailed):
                if beside and i == 0:
                    process.call("play", 1, beside.row, beside.seed, [])
                elif beside:
                    process.call("act", 1, msgspec.to_builtins(beside.turns[i]))
            observations, is_done = process.call("act", 0, msgspec.to_builtins(turn))
            text = " | ".join(text for text, _ in observations) + " (done)" * is_done
            told.append((f"to turn {i + 1}, {turn.content or turn.calls!r:.60}, it said", text))
            if is_done:
                break
        told.append(("it paid", str(process.call("finish", 0)[0])))
    except EnvironmentFailed as error:
        told.append((FAILED, str(error)))
    return told


def difference(one: Playthrough, other: Playthrough) -> str:
    """Say where two playings of a script part, and what each said; "" if they do not."""
    for (was, first), (where, then) in zip(one, other, strict=False):
        if (was, first) != (where, then):
            alike = len(commonprefix([first, then]))  # noqa: RUF071 - of texts, not of paths
            part = slice(max(0, alike - SHOWN // 3), alike + SHOWN)
            before = "" if was == where else f"{was} "
            return f"{where} {then[part]!r}, first {before}{first[part]!r}"
    return ""


def _remarks(
    scripts: Sequence[Script], told: Sequence[Playthrough], is_seeded: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return lines on what changes an episode and what was paid, and warnings."""
    answers = []  # without echoes of the turns
    for script, its in zip(scripts, told, strict=True):
        pairs = zip(script.turns, its[1:-1], strict=False)
        said = [text.replace(turn.content, "") for turn, (_, text) in pairs]
        answers.append(f"{its[0]} {said} {its[-1]}")

    def decide(*same: str) -> bool:
        """Tell whether scripts that are the same in these fields went on differently."""
        alike = [repr([getattr(script, field) for field in same]) for script in scripts]
        return len({*zip(alike, answers, strict=True)}) > len({*alike})

    seeds, rows = decide("row", "turns"), decide("seed", "turns")
    paid = sorted({float(its[-1][1]) for its in told if its[-1][0] != FAILED})
    lines = [
        f"{len(told)} episodes of up to {TURNS} turns repeat exactly",
        *(f"other {name} make other episodes" for name in ["seeds"] * seeds + ["rows"] * rows),
        f"rewards: {paid[0]:g}" + f" to {paid[-1]:g}" * (len(paid) > 1),
    ]
    warnings = [SEEDS_WARNING] * (is_seeded and not seeds and not rows)
    warnings += [TURNS_WARNING] * (not decide("row", "seed"))
    return tuple(lines), tuple(warnings)
