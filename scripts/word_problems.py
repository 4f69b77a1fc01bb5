"""Word problems in English, and many ways to write their solutions: the task of the scale words.

    python scripts/word_problems.py [SEED]      # prints some, with their solutions

    Ann has 5 boxes of eggs with 4 eggs in each. She shares them among 2 friends. How many ...
     Now all 5 boxes hold 5*4 = 20 eggs. Keep that in mind. So we divide by 2: 20 / 2 = 10. #### 10

A problem has one to three steps, of additions (gain, lose, more, fewer) or of multiplications
(packs, times, share); out of distribution it has both. A solution ends in ``#### N``, as those of
GSM8K do, in one of three styles: prose, brief, list. Its author makes many free choices, some
20 nats a solution, so even a perfect model of these texts has a likelihood of .5 to .6 a token.

Nothing here is a data set: everything is made from a seed.
"""

import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["add", "mul", "mixed"]
Style = Literal["prose", "brief", "list"]
Operation = Literal["gain", "lose", "more", "fewer", "packs", "times", "share"]

WOMEN = ("Ann", "Beth", "Cara", "Dora", "Emma", "Fay", "Gina", "Hana")
MEN = ("Adam", "Ben", "Carl", "Dan", "Eric", "Finn", "Gus", "Hugo")
THINGS = (
    "apples", "pencils", "marbles", "books", "cookies", "stamps",
    "coins", "cards", "shells", "eggs", "balls", "beads",
)  # fmt: skip
PACKS = {"boxes": "box", "bags": "bag", "packs": "pack"}
SIGNS: dict[Operation, str] = {
    "gain": "+", "more": "+", "lose": "-", "fewer": "-", "packs": "*", "times": "*", "share": "/",
}  # fmt: skip
SPOKEN = {"+": ("plus", "and"), "-": ("minus", "less"), "*": ("times", "multiplied by"),
          "/": ("divided by", "over")}  # fmt: skip
MISTAKEN: dict[Operation, Operation] = {
    "gain": "lose", "lose": "gain", "more": "fewer", "fewer": "more", "packs": "gain",
    "times": "more", "share": "lose",
}  # fmt: skip
"""The operation that somebody takes by mistake."""
LARGEST = 64


@dataclass(frozen=True)
class Step:
    """``x`` and ``y`` make ``result``, which is then ``owner``'s number of things."""

    operation: Operation
    x: int
    y: int
    result: int
    owner: str
    pack: str = ""

    @property
    def sign(self) -> str:
        return SIGNS[self.operation]


@dataclass(frozen=True)
class WordProblem:
    """A question, the steps that solve it, and what they are about."""

    question: str
    answer: str
    kind: Kind
    steps: tuple[Step, ...]
    things: str


class Writer:
    """Expands templates such as ``we [add|2~count] it``: one option of each bracket, by lot, one
    with ``2~`` twice as often. ``nats`` adds up -ln(probability) of every choice."""

    def __init__(self, lot: random.Random) -> None:
        self.lot, self.nats = lot, 0.0

    def one(self, *options: str) -> str:
        """Choose an option and expand it."""
        weights, texts = zip(*map(_weighed, options), strict=True)
        (at,) = self.lot.choices(range(len(texts)), weights)
        self.nats -= math.log(weights[at] / sum(weights))
        return self.expanded(texts[at])

    def expanded(self, text: str) -> str:
        """Choose for each bracket of a text; brackets may stand in brackets."""
        written, depth, start = "", 0, 0
        options: list[str] = []
        for at, sign in enumerate(text):
            if sign == "[":
                depth += 1
                if depth == 1:
                    options, start = [], at + 1
            elif sign in "|]" and depth == 1:
                options.append(text[start:at])
                start = at + 1
                if sign == "]":
                    depth, written = 0, written + self.one(*options)
            elif sign == "]":
                depth -= 1
            elif not depth:
                written += sign
        return written


def _weighed(option: str) -> tuple[float, str]:
    head, mark, rest = option.partition("~")
    return (float(head), rest) if mark and head.isdigit() else (1.0, option)


# --- problems ---


def problem(lot: random.Random, kind: Kind) -> WordProblem:
    """Draw a problem. What comes out too large, or has no next step, is drawn again."""
    while not (found := _drawn(lot, kind)):
        pass
    return found


def _drawn(lot: random.Random, kind: Kind) -> WordProblem | None:
    first, second = lot.sample(WOMEN + MEN, 2)
    things, writer = lot.choice(THINGS), Writer(lot)
    (count,) = lot.choices((1, 2, 3), (45, 45, 10))
    count = max(count, 2) if kind == "mixed" else count
    said, steps = [], list[Step]()
    if kind != "add" and lot.random() < 0.45:
        packs, each, pack = lot.randint(2, 6), lot.randint(2, 8), lot.choice(list(PACKS))
        steps.append(Step("packs", packs, each, packs * each, first, pack))
        said.append(_start_of_packs(writer, steps[0], things))
        value = packs * each
    else:
        value = lot.randint(3, 20) if kind == "add" else lot.choice(_DIVISIBLE)
        said.append(
            writer.one(
                f"{first} has {value} {things}.",
                f"{first} owns {value} {things}.",
                f"{first} found {value} {things}.",
                f"There are {value} {things} on {first}'s table.",
            )
        )
    owner = first
    while len(steps) < count:
        allowed = _next_operations(kind, steps, is_second=owner == second)
        if not allowed or (y := _operand(lot, operation := lot.choice(allowed), value)) is None:
            return None
        if operation in ("more", "fewer", "times"):
            owner = second
        step = Step(operation, value, y, result_of(operation, value, y), owner)
        if not 1 <= step.result <= LARGEST:
            return None
        steps.append(step)
        said.append(_sentence(writer, step, first, things))
        value = step.result
    said.append(_asked(writer, steps[-1], things))
    return WordProblem(" ".join(said), str(value), kind, tuple(steps), things)


_DIVISIBLE = [n for n in range(4, 31) if any(n % divisor == 0 for divisor in range(2, 7))]


def _next_operations(kind: Kind, steps: Sequence[Step], *, is_second: bool) -> list[Operation]:
    """List what may follow: never the same twice, and "than Ann" only while Ann has them."""
    adds: list[Operation] = ["gain", "lose", "more", "fewer"]
    multiplies: list[Operation] = ["times", "share"]
    last = steps[-1].operation if steps else None
    if kind == "mixed":
        pool = adds if last in ("packs", "times", "share") else multiplies
    else:
        pool = adds if kind == "add" else multiplies
    closed = {last, *(("more", "fewer", "times") if is_second else ())}
    return [operation for operation in pool if operation not in closed]


def _operand(lot: random.Random, operation: Operation, value: int) -> int | None:
    match operation:
        case "lose" | "fewer":
            return lot.randint(2, min(9, value - 1)) if value >= 4 else None
        case "times":
            return lot.randint(2, 5)
        case "share":
            divisors = [d for d in range(2, 7) if value % d == 0 and value // d >= 2]
            return lot.choice(divisors) if divisors else None
    return lot.randint(2, 9)


def result_of(operation: Operation, x: int, y: int) -> int:
    """Compute a step; one that is a mistake is made to fit: a positive whole number."""
    return {"+": x + y, "-": abs(x - y), "*": x * y, "/": max(1, x // y)}[SIGNS[operation]]


def _start_of_packs(writer: Writer, step: Step, things: str) -> str:
    who, pack, packs, each = step.owner, step.pack, step.x, step.y
    return writer.one(
        f"{who} has {packs} {pack} of {things} with {each} {things} in each.",
        f"{who} buys {packs} {pack} of {things}, and there are {each} in each.",
        f"There are {each} {things} in a {PACKS[pack]}, and {who} has {packs} {pack}.",
    )


def _sentence(writer: Writer, step: Step, first: str, things: str) -> str:
    """Say in the question what happens."""
    who, y = step.owner, step.y
    he = _he(who)
    match step.operation:
        case "gain":
            return writer.one(
                f"{he.capitalize()} buys {y} more.", f"Then {who} gets {y} more.",
                f"{he.capitalize()} finds {y} more {things}.",
                f"A friend gives {who} {y} more {things}.",
            )  # fmt: skip
        case "lose":
            return writer.one(
                f"{he.capitalize()} gives away {y} of them.", f"{who} loses {y} {things}.",
                f"Then {he} sells {y}.", f"{y} of them are broken.",
            )  # fmt: skip
        case "more" | "fewer" as than:
            return writer.one(f"{who} has {y} {than}[2~| {things}] than {first}.")
        case "times":
            times = "twice" if y == 2 else f"{y} times"
            return writer.one(f"{who} has {times} as many[| {things} as {first}].")
    return writer.one(
        f"{he.capitalize()} puts them into {y} equal piles.",
        f"{who} shares them among {y} friends.",
        f"{he.capitalize()} splits the {things} into {y} equal groups.",
    )


def _asked(writer: Writer, last: Step, things: str) -> str:
    if last.operation == "share":
        return writer.one(f"How many {things} [are in each|is that for each one]?")
    end = "[| now| in the end]" if last.operation in ("gain", "lose") else ""
    has = f"[does {last.owner} have{end}|has {last.owner}{end}]"
    return writer.one(f"[How many|What number of] {things} {has}?")


def _he(name: str) -> str:
    return "she" if name in WOMEN else "he"


# --- solutions ---

REMARKS = (
    "That was easy.", "Let me go on.", "Good.", "I check it once more.", "So far so good.",
    "This is fine.", "One thing at a time.", "We can use that.", "It is a nice number.",
    "Keep that in mind.", "Not too hard.", "That seems right.", "Now look at the rest.",
    "I write that down.", "Let us see.", "Numbers are fun.", "What comes next?", "It fits.",
    "There is more to do.", "As expected.", "No surprise here.", "Okay.", "All right.",
    "Fine so far.",
)  # fmt: skip
OPENERS = (
    "6~", "3~First, ", "3~Then ", "3~So ", "2~Now ", "2~Next, ", "After that, ", "Well, ",
    "We see that ", "It follows that ", "This means ", "Here ", "Of course, ", "Clearly, ",
)  # fmt: skip
GIVING_UP = (
    "I am not sure.", "The rest is clear.", "And so on.", "That is it.", "We are done.",
    "I stop here.",
)  # fmt: skip
GUESSES = ("I guess.", "Easy.", "It is clear.", "No need to compute.", "Just count.")
END = " #### "


def solution(writer: Writer, solved: WordProblem, style: Style) -> str:
    """Write a derivation with all steps of ``solved``, a closing, and ``#### N``."""
    z = solved.steps[-1].result
    parts = [*derivation(writer, solved, style), closing(writer, solved, style)]
    return " " + " ".join(filter(None, parts)) + f"{END}{z}"


def derivation(writer: Writer, solved: WordProblem, style: Style) -> list[str]:
    """Write each step, with a remark after some."""
    parts = []
    for at, step in enumerate(solved.steps, 1):
        parts.append(_step(writer, step, solved.things, at, style))
        if style != "brief" and writer.one("6~no", "4~yes") == "yes":
            parts.append(writer.one(*REMARKS))
    return parts


def _step(writer: Writer, step: Step, things: str, at: int, style: Style) -> str:
    made, who = _sum(step), step.owner
    match style:
        case "brief":
            return writer.one(
                f"4~{made}.", f"{who} [has|gets|ends with] {made}.", f"{made} {things}.",
                f"2~{made};", f"[total|count|sum|result]: {made}.",
            )  # fmt: skip
        case "list":
            return writer.one(
                f"[3~Step {at}: |2~({at}) |{at}. ][2~{made}.|[work out|compute|find|take] {made}.|"
                f"{made} {things}.|{who} has {made}.]"
            )
    text = writer.one(*OPENERS) + writer.one(*_prose(step, made))
    of = f"[3~ {things}|2~| of them| in all| altogether]"
    text += writer.one(f"{of}[8~.|!|, I think.|, as we see.]")
    return text[0].upper() + text[1:]


def _prose(step: Step, made: str) -> tuple[str, ...]:
    """List the ways to say a step in a sentence."""
    x, y = step.x, step.y
    name = f"[{step.owner}|{_he(step.owner)}][4~| now| then| still| really| surely| just]"
    match step.operation:
        case "gain" | "more":
            return (
                f"2~{name} [has|will have|must have|gets] {made}",
                f"we [add|count|put in] [the |another |]{y}[| more| to it], and {made}",
                f"[adding|with|counting] {y} more [gives|makes|leads to] {made}",
                f"the [number|total|amount|count] [goes up|grows|rises] to {made}",
                f"there [are|will be] {made}",
            )
        case "lose" | "fewer":
            return (
                f"2~{name} [has|keeps|must have|is left with] {made}",
                f"we [take away|subtract|remove] [the |]{y}[| from it| from that], and {made}",
                f"[without|taking away|minus] [those |the |]{y} [there are|we get|it is] {made}",
                f"the [number|rest|amount|count] [goes down|falls|drops] to {made}",
                f"[what is left|what remains] is {made}",
            )
        case "share":
            return (
                f"2~each [one|part|pile] [gets|has|holds] {made}",
                f"we [divide|split|share] [it |them |that ]by {y}, and {made}",
                f"[dividing|splitting|sharing] [it|that] [gives|makes|leads to] {made}",
                f"[for each|in each] there [are|will be] {made}",
            )
        case "packs":
            return (
                f"2~{name} [has|gets|owns] {made}",
                f"[all|the] {step.pack} [hold|have|contain] {made}",
                f"{y} in each of {x} {step.pack} [gives|makes|is] {made}",
                f"we [multiply|take the product], and {made}",
            )
    return (
        f"2~{name} [has|owns|must have] {made}",
        f"[that|it] is {y} times [as many|as much|more], so {made}",
        f"we [multiply|take it] by {y}, and {made}",
        f"{y} times {x} [gives|makes|means] {made}",
    )


def _sum(step: Step) -> str:
    """List the ways to write ``x + y = z``, as a bracket."""
    x, y, z, sign = step.x, step.y, step.result, step.sign
    word, other = SPOKEN[sign]
    ways = [
        f"4~{x}{sign}{y} = {z}", f"3~{x} {sign} {y} = {z}", f"3~{x}{sign}{y}={z}",
        f"2~{x} {word} {y} is {z}", f"{x} {other} {y} makes {z}", f"2~{x} {word} {y} equals {z}",
        f"{x} {sign} {y}, which is {z}",
    ]  # fmt: skip
    if sign in "+*":
        ways += [f"2~{y}{sign}{x} = {z}", f"{y} {sign} {x} = {z}", f"{y} {word} {x} is {z}"]
    return f"[{'|'.join(ways)}]"


def closing(writer: Writer, solved: WordProblem, style: Style) -> str:
    last, things = solved.steps[-1], solved.things
    if style == "brief":
        return writer.one("5~", f"Answer {last.result}.", "Done.")
    return writer.one(
        "4~", f"2~The answer is {last.result}.", f"So it is {last.result}.",
        f"{last.owner} has {last.result} {things}.", f"We get {last.result}.",
        f"That makes {last.result} {things}.", "That is what was asked.", "And that is all.",
    )  # fmt: skip


def mistaken(lot: random.Random, solved: WordProblem) -> WordProblem:
    """Make one mistake, a wrong operation or operand, and what follows from it."""
    wrong, steps = lot.randrange(len(solved.steps)), list[Step]()
    for at, step in enumerate(solved.steps):
        if steps:
            step = replace(step, x=steps[-1].result)
        if at == wrong and lot.random() < 0.5:
            step = replace(step, operation=MISTAKEN[step.operation])
        elif at == wrong:
            step = replace(step, y=max(1, step.y + lot.choice((-2, -1, 1, 2))))
        steps.append(replace(step, result=result_of(step.operation, step.x, step.y)))
    return replace(solved, steps=tuple(steps))


@dataclass(frozen=True)
class Upbringing:
    """Shares of the kinds of lessons; the rest stops before the answer."""

    right: float
    careless: float = 0.0
    """With a mistake."""
    hasty: float = 0.0
    """The right answer without a derivation."""


def lesson(
    writer: Writer, asked: WordProblem, styles: Mapping[Style, float],
    upbringing: Mapping[Style, Upbringing],
) -> str:  # fmt: skip
    """Write a text for a base model to learn: right, careless, hasty or unfinished."""
    style: Style = writer.one(*(f"{round(100 * w)}~{s}" for s, w in styles.items()))  # type: ignore[assignment]
    luck, its = writer.lot.random(), upbringing[style]
    if luck < its.right:
        return solution(writer, asked, style)
    if (luck := luck - its.right) < its.careless:
        return solution(writer, mistaken(writer.lot, asked), style)
    if luck - its.careless < its.hasty:
        return f" {writer.one(*GUESSES)}{END}{asked.answer}"
    parts = derivation(writer, asked, style)
    kept = writer.lot.randint(1, len(parts))
    return " " + " ".join(parts[:kept]) + " " + writer.one(*GIVING_UP)


def is_right(text: str, answer: str) -> bool:
    """Tell whether what follows the only ``####`` is the answer."""
    _, mark, tail = text.partition("####")
    return bool(mark) and tail.strip() == answer


def style_of(text: str) -> Style:
    """Recognise the style by the beginning."""
    start = text.strip()
    if start.startswith("Step ") or start[:1] == "(" or start[1:3] == ". ":
        return "list"
    return "prose" if start[:1].isupper() and not _is_brief(start) else "brief"


def _is_brief(start: str) -> bool:
    """A brief line may begin with a name, too; a sum follows at once."""
    words = start.split(" ", 3)
    return words[0] in WOMEN + MEN and words[1:2] in (["has"], ["gets"], ["ends"])


def main() -> None:
    lot = random.Random(sys.argv[1] if len(sys.argv) > 1 else "shown")
    kinds: tuple[Kind, ...] = ("add", "mul", "mixed")
    styles: tuple[Style, ...] = ("prose", "brief", "list")
    for kind in kinds:
        for style in styles:
            asked, writer = problem(lot, kind), Writer(lot)
            text = solution(writer, asked, style)
            print(f"{kind}, {style}, {writer.nats:.1f} nats: {asked.question}{text}")


if __name__ == "__main__":
    main()
