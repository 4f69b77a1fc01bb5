"""The grade of an environment: it is played several times over before it is believed.

Processes play the same scripts: a row, a seed, and turns. All must say and pay the same. A host
begins the random numbers of Python and NumPy anew for each episode and gives each its own, so what
draws them from there repeats. What passes may still differ where no script came: the digests behind
an author's turns tell (``Completion.observed``).
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product, zip_longest
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from potluck.episode import EnvironmentFailed, Grade, ToolCall, Turn
from potluck.files import derived_seed
from potluck.tasks.environments.kinds import EnvironmentKind, Spec
from potluck.tasks.environments.process import Process

TURNS, FIRST_TURNS, MOST_ROWS = 8, 16, 3
TIME_S = 3.0
"""Time that scripts may take in the first process; those that it did not come to are left out."""
A_SECOND_S = 1.1
SHOWN = 60
"""Characters of what was said, where two of them part."""
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
    """An episode to play."""

    row: Mapping[str, Any]
    seed: int
    turns: tuple[Turn, ...]


class Heard(NamedTuple):
    """How a script went on, as ``host.py`` says it."""

    start: str | None
    steps: list[Any]
    reward: float
    error: str = ""
    """Error of a call that failed; empty: none did."""


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
        tools, pays, _ = first.ask("about")
        named, is_seeded = first.ask("hints")
        turns = [turn_of(text) for text in actions or named] or probes(tools)
        scripts = [*_scripts(turns, rows[:MOST_ROWS])]
        begun, heard = time.monotonic(), list[Heard]()
        while len(heard) < len(scripts) and (len(heard) < 4 or time.monotonic() < begun + TIME_S):
            heard.append(_heard(first, scripts[len(heard)]))
    finally:
        first.end()
    if all(each.error for each in heard):
        raise EnvironmentFailed(heard[0].error)
    time.sleep(max(0.0, begun + A_SECOND_S - time.monotonic()))

    def parted(how: str) -> str:
        process, order = Process(spec, *limits, AGAIN[how]), [*range(len(heard))]
        try:
            for i in reversed(order) if how == LAST else order:
                told = _heard(process, scripts[i], scripts[i - 1] if how == LAST else None)
                if found := difference(scripts[i], heard[i], told):
                    return f"{how}: {found}"
        finally:
            process.end()
        return ""

    with ThreadPoolExecutor(len(AGAIN)) as threads:
        if why := next(filter(None, threads.map(parted, AGAIN)), ""):
            return Checked(spec.kind, "own", (why,))
    grade: Grade = "replay" if pays else "transcript"
    return Checked(spec.kind, grade, *_remarks([*zip(scripts, heard, strict=False)], is_seeded))


def kind_of(name: str, limits: tuple[float, int]) -> EnvironmentKind:
    """Tell which kind a class is: a game has ``step``. Raise EnvironmentFailed for neither."""
    game = Process(Spec("game", name), *limits, {})
    try:
        game.ask("about")
    except EnvironmentFailed as error:
        if "no method step" not in str(error):
            raise
        return "environment"
    finally:
        game.end()
    return "game"


def turn_of(text: str) -> Turn:
    """Read a turn to try: a tool call if it is JSON of one, else what the model says.

    >>> turn_of('{"name": "add", "arguments": {"a": 1}}').calls
    (ToolCall(name='add', arguments={'a': 1}),)
    """
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
    """Make scripts that begin with one action after the other, for each row and two seeds."""
    seeds = [derived_seed(f"check/{i}") for i in range(2)]
    for i in range(FIRST_TURNS):
        turns = (actions[i % len(actions)], *random.Random(i).choices(actions, k=TURNS - 1))
        yield from (Script(row, seed, turns) for row, seed in product(rows, seeds))


def _heard(process: Process, script: Script, beside: Script | None = None) -> Heard:
    """Play a script, and ``beside`` it another one in the same process, turn by turn."""
    start, steps = None, list[Any]()
    try:
        start, _ = process.ask("play", 0, script.row, script.seed, [])
        for i, turn in enumerate(script.turns):
            with suppress(EnvironmentFailed):
                if beside and i == 0:
                    process.ask("play", 1, beside.row, beside.seed, [])
                elif beside:
                    process.ask("act", 1, msgspec.to_builtins(beside.turns[i]))
            steps.append(process.ask("act", 0, msgspec.to_builtins(turn)))
            if steps[-1][1]:
                break
        return Heard(start, steps, process.ask("finish", 0)[0])
    except EnvironmentFailed as error:
        return Heard(start, steps, 0.0, str(error))


def difference(script: Script, one: Heard, other: Heard) -> str:
    """Say where two playings of a script part, and what each said; "" if they do not.

    >>> script = Script({}, 0, (Turn("up"),))
    >>> difference(script, Heard("a", [], 0.0), Heard("b", [], 0.0))
    "at reset it said 'b', first 'a'"
    """
    pairs = [("at reset it said", str(one.start), str(other.start))]
    for i, (first, then) in enumerate(zip_longest(one.steps, other.steps)):
        wrote = script.turns[i].content or script.turns[i].calls
        pairs.append((f"to turn {i + 1}, {wrote!r:.60}, it said", _text(first), _text(then)))
    pairs.append(("the error was", one.error, other.error))
    pairs.append(("it paid", str(one.reward), str(other.reward)))
    for where, first, then in pairs:
        if first != then:
            alike = next(
                (i for i, (a, b) in enumerate(zip(first, then, strict=False)) if a != b), 0
            )
            part = slice(max(0, alike - SHOWN // 3), alike + SHOWN)
            return f"{where} {then[part]!r}, first {first[part]!r}"
    return ""


def _text(step: Any) -> str:
    """Write a step of the host to be read: what it says, and that it is done."""
    said, is_done = step or ([], False)
    return " | ".join(text for text, _ in said) + " (done)" * is_done


def _remarks(
    played: Sequence[tuple[Script, Heard]], is_seeded: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tell what seeds, rows and actions change, and what was paid: lines, and warnings."""

    def differ(alike: Callable[[Script], Any], told: Callable[[Script, Heard], Any]) -> bool:
        """Tell whether two scripts that are alike in this went on differently in that."""
        seen = dict[str, Any]()
        return any(seen.setdefault(repr(alike(s)), told(s, h)) != told(s, h) for s, h in played)

    seeds = differ(lambda script: (script.row, script.turns), lambda _, heard: heard)
    rows = differ(lambda script: (script.seed, script.turns), lambda _, heard: heard)
    acts = differ(lambda script: (script.row, script.seed), _answer)
    paid = sorted({heard.reward for _, heard in played})
    lines = [
        f"{len(played)} episodes of up to {TURNS} turns repeat exactly",
        *(f"other {name} make other episodes" for name in ["seeds"] * seeds + ["rows"] * rows),
        f"rewards: {paid[0]:g}" + f" to {paid[-1]:g}" * (len(paid) > 1),
    ]
    warnings = [SEEDS_WARNING] * (is_seeded and not seeds and not rows) + [TURNS_WARNING] * (
        not acts
    )
    return tuple(lines), tuple(warnings)


def _answer(script: Script, heard: Heard) -> str:
    """Write how a script was answered and paid, without echoes of its turns."""
    pairs = zip(script.turns, heard.steps, strict=False)
    said = [json.dumps(step).replace(json.dumps(turn.content)[1:-1], "") for turn, step in pairs]
    return f"{said} {heard.reward}"
