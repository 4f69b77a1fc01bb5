"""How one model writes a turn with tool calls, and what it reads between two turns.

Its own chat template says so: a call and an observation that are easy to find are rendered once,
and the text around them is kept. What is said is put between, and never goes through a template,
which could cut it; nor may it become a special token.

Pieces are texts in turn: the template's own, what somebody said, the template's own, ...
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, takewhile
from typing import Any

import msgspec
from transformers import PreTrainedTokenizerBase

from potluck.episode import ToolCall, Turn, text_of, turns_in
from potluck.model.loading import ModelError
from potluck.model.prompt import is_templated
from potluck.template import TemplateFailed, render
from potluck.types import ChatTemplate, Observation

NAME, SAID, HEARD = "potluckName", "potluckSaid", 'potluck"Heard'
"""Words that stand for what is not known yet. With a quote: it shows whether JSON is made of it."""
ID = "call00000"  # name of every call, where a template has names for calls: some want 9 letters
ARGUMENTS = {"potluckKey": "one", "potluckOther": "two"}
SPACE = r"\s{0,64}"  # bounded: a text of brackets and spaces costs no more than its length
IN_JSON = (
    rf'\{{{SPACE}"potluckKey"({SPACE}:{SPACE})"one"({SPACE},{SPACE})'
    rf'"potluckOther"{SPACE}:{SPACE}"two"{SPACE}\}}'
)
CALL = {"type": "function", "id": ID, "function": {"name": NAME, "arguments": ARGUMENTS}}
USER = {"role": "user", "content": "hello"}
NEVER = "(?!)"  # pattern that nothing matches
NAMED = re.compile(r"([^\W\d][\w.:/-]*)")
KEY = re.compile(r"\s*(\w+)\s*=\s*")

Messages = Sequence[Mapping[str, Any]]
Render = Callable[[Messages], str]
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True)
class Plain:
    """Calls of a model without a chat template: a turn that is ``name(key=value,key=value)``, its
    values in JSON, and nothing else.

    >>> Plain().read('add(a=1, b=[2])')
    Turn(content='', calls=(ToolCall(name='add', arguments={'a': 1, 'b': [2]}),))
    """

    def read(self, text: str) -> Turn:
        if text.endswith(")") and (name := re.match(NAMED.pattern + r"\(", text)):
            arguments, at = {}, name.end()
            try:
                while key := KEY.match(text, at):
                    arguments[key[1]], at = _decode(text, key.end())
                    at += text.startswith(",", at)
            except (ValueError, RecursionError):
                return Turn(text)
            turn = Turn("", (ToolCall(name[1], arguments),))
            if at == len(text) - 1 and can_travel(turn):
                return turn
        return Turn(text)

    def write(self, turn: Turn) -> list[str] | None:
        if turn.content or len(turn.calls) > 1:
            return None
        [call] = turn.calls
        said = (f"{key}={_json(value, (',', ':'))}" for key, value in call.arguments.items())
        return ["", f"{call.name}({','.join(said)})"]


@dataclass(frozen=True)
class Markup:
    """Text that a chat template puts around the names and arguments of tool calls."""

    opening: str
    middle: str  # between a name and its arguments
    another: str | None  # between two calls; None: a turn has one at most
    closing: str
    glue: str | None  # between what a turn says and its calls; None: one of them is nothing
    separators: tuple[str, str]  # of JSON: between items, and behind a key

    def read(self, text: str) -> Turn:
        at, opening = 0, re.compile(_loose(self.opening))
        while begin := opening.search(text, at):
            content = text[: begin.start()]
            if self.glue is None and content.strip():
                break
            calls, at = self._calls(text, begin.end())
            turn = Turn(content.removesuffix(self.glue) if self.glue else "", calls)
            if calls and can_travel(turn):
                return turn
        return Turn(text)

    def _calls(self, text: str, at: int) -> tuple[tuple[ToolCall, ...], int]:
        """Read calls up to the end of the text, or none, and how far they go."""
        # What space took is not given back: two such patterns side by side would be quadratic.
        calls, middle = [], re.compile(NAMED.pattern + _loose(self.middle))
        another, closing = (re.compile(r"\s*+" + _loose(t)) for t in (self.another, self.closing))
        while name := middle.match(text, at):
            try:
                arguments, at = _decode(text, name.end())
            except (ValueError, RecursionError):
                break
            calls.append(ToolCall(name[1], arguments))
            if closing.fullmatch(text, at):
                return tuple(calls), len(text)
            if not (more := another.match(text, at)):
                break
            at = more.end()
        return (), at

    def write(self, turn: Turn) -> list[str] | None:
        if (turn.content and self.glue is None) or (len(turn.calls) > 1 and self.another is None):
            return None
        pieces = ["", turn.content, (self.glue or "") * bool(turn.content) + self.opening]
        for call in turn.calls:
            arguments = _json(call.arguments, self.separators)
            pieces += [call.name, self.middle, arguments, self.another or ""]
        return [*pieces[:-1], self.closing]


def _json(value: object, separators: tuple[str, str]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=separators)


@lru_cache
def _loose(text: str | None) -> str:
    """Make a pattern of a template's text that leaves open the space around JSON's signs, and the
    names of calls."""
    if text is None:
        return NEVER
    words = [re.escape(w) for w in re.split(r"\s*([{}\[\]:,])\s*|\s+", text) if w]
    pattern = r"\s*".join(words).replace(ID, r"\w*")
    optional = r'(?:,\s*"id"\s*:\s*"\w*"\s*)?'
    return pattern.replace(r',\s*"id"\s*:\s*"\w*"\s*', optional) + r"\s*+"


def can_travel(turn: Turn) -> bool:
    """Return whether a reader of ``text_of`` gets the turn."""
    try:
        return turns_in(text_of([turn])) == (turn,)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError, TypeError):
        return False


def calls_of(render: Render, stops: Collection[str]) -> Markup | None:
    """Find how a chat template writes calls; None: it does not, or not with arguments in JSON."""
    name, said = re.compile(NAME), re.compile(SAID)
    arguments = re.compile(IN_JSON)
    stop = re.compile("|".join(map(re.escape, stops)))
    begun = render([USER])

    def told(content: str, calls: int, *marks: re.Pattern[str]) -> list[re.Match[str]] | None:
        message = {"role": "assistant", "content": content, "tool_calls": [CALL] * calls}
        text = render([USER, message])
        return in_turn(text, marks, _alike(text, begun))

    alone = told("", 1, name, arguments, stop)
    if alone is None:
        return None
    named, with_arguments, ended = alone
    text, begin = named.string, named.pos
    opening = text[begin : named.start()]
    middle = text[named.end() : with_arguments.start()]
    closing = text[with_arguments.end() : ended.start()]
    colon, comma = with_arguments.groups()
    if not opening.strip():
        return None  # nothing would tell a call from what a turn says

    another, glue = None, None
    if several := told("", 2, name, arguments, name, arguments, stop):
        another = several[2].string[several[1].end() : several[2].start()]
    if spoken := told(SAID, 1, said, name):
        before = spoken[0].string[spoken[0].end() : spoken[1].start()]
        # Some templates put empty thoughts in front, where nothing was said.
        shared = _alike(opening[::-1], before[::-1])
        opening = opening[len(opening) - shared :].lstrip()
        glue = before.removesuffix(opening)
    return Markup(opening.lstrip(), middle, another, closing, glue, (comma, colon))


def in_turn(text: str, marks: Sequence[re.Pattern[str]], at: int = 0) -> list[re.Match[str]] | None:
    """Find marks in a text, the first place of each behind the one before, from ``at`` on; None if
    one is not there. It looks at the text once: a template may print a megabyte of marks."""
    found = []
    for mark in marks:
        match = mark.search(text, at)
        if match is None:
            return None
        at = match.end()
        found.append(match)
    return found


def _alike(one: str, other: str) -> int:
    """Count the signs with which both texts begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _rendered(
    tokenizer: PreTrainedTokenizerBase, variables: Mapping[str, object], messages: Messages
) -> str:
    """Render a chat by the tokenizer's template; empty where it cannot."""
    words = {**tokenizer.special_tokens_map, **variables}
    try:
        return render(tokenizer.get_chat_template(), messages, words)
    except (TemplateFailed, ValueError):
        return ""


class Speech:
    """A model's own way to write turns and to read observations."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        stops: Collection[str],
        variables: Mapping[str, object],
        chat_template: ChatTemplate = "model",
    ) -> None:
        """Find it. ``stops`` are the texts of the tokens that end a turn, ``variables`` those of
        the chat template."""
        self._stops, self._name = stops, tokenizer.name_or_path
        self._templated = is_templated(tokenizer, chat_template)
        self._render = partial(_rendered, tokenizer, variables)
        self.calls = calls_of(self._render, stops) if self._templated else Plain()
        self._around = lru_cache(maxsize=64)(self._find_around)

    def read(self, text: str) -> Turn:
        """Read a turn; what is no call by the letter is what the turn says."""
        return self.calls.read(text) if self.calls else Turn(text)

    def write(self, turn: Turn) -> list[str] | None:
        """Write a turn in pieces; None: the model has no way to say it."""
        if turn.calls:
            return self.calls.write(turn) if self.calls else None
        return ["", turn.content]

    def marks(self, special: Mapping[str, int]) -> frozenset[int]:
        """List the special tokens that calls are written with."""
        calls = self.calls
        if not isinstance(calls, Markup):
            return frozenset()
        pieces = [calls.opening, "", calls.middle, "", calls.another or "", "", calls.closing]
        return frozenset(part for part in segments(pieces, special) if isinstance(part, int))

    def heard(self, observations: Sequence[Observation]) -> list[str]:
        """Write what stands between a turn's stop token and the next turn, in pieces."""
        said = [each.content for each in observations]
        if not self._templated:
            return ["", "\n".join(said)]
        # A name that no turn_of reads may be anything, and stands in the template's own text.
        tools = tuple(o.tool if NAMED.fullmatch(o.tool) else "tool" for o in observations if o.tool)
        around, escaped = self._around(tools if len(tools) == len(said) else ())
        if len(around) == 2:
            said = ["\n".join(said)]
        said = [_json(each, (", ", ": "))[1:-1] if escaped else each for each in said]
        return [around[0], *chain(*zip(said, around[1:], strict=True))]

    def _find_around(self, tools: tuple[str, ...]) -> tuple[list[str], bool]:
        """Find the texts around the answers of tools, or else around a message of the user; and
        whether what was heard is escaped as in JSON."""
        calls = [CALL | {"function": {"name": t, "arguments": {"said": SAID}}} for t in tools]
        answer = {"role": "tool", "tool_call_id": ID, "content": HEARD}
        answers = [{**answer, "name": tool} for tool in tools]
        called = {"role": "assistant", "content": "", "tool_calls": calls}
        said = {"role": "assistant", "content": SAID}
        tried: list[Messages] = [[USER, called, *answers]] if tools else []
        for messages in [*tried, [USER, said, {"role": "user", "content": HEARD}]]:
            _, found, behind = self._render(messages).rpartition(SAID)
            ended = re.split("|".join(map(re.escape, self._stops)), behind, maxsplit=1)
            for word in (HEARD, HEARD.replace('"', r"\"")):
                around = ended[-1].split(word)
                if found and len(ended) == 2 and len(around) == len(messages) - 1:
                    return around, word != HEARD
        raise ModelError(
            f"the chat template of {self._name!r} ends an answer by none of the model's stop "
            f"tokens ({', '.join(self._stops)}), or drops what comes behind; name the one that it "
            f"has in [sampling] stop, or take a model without a template"
        )


def segments(pieces: Sequence[str], special: Mapping[str, int]) -> list[Any]:
    """Part pieces at the special tokens of the template's own text: text, id, text, ..., text."""
    found: list[Any] = [""]
    split = re.compile("|".join(map(re.escape, sorted(special, key=len, reverse=True))) or NEVER)
    for at, piece in enumerate(pieces):
        end = 0
        for token in split.finditer(piece) if at % 2 == 0 else ():
            found[-1] += piece[end : token.start()]
            found += [special[token[0]], ""]
            end = token.end()
        found[-1] += piece[end:]
    return found
