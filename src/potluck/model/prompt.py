"""What a model reads before it writes: a problem, put into the model's chat template.

A template is a program of a stranger, so nothing is taken for granted of it: ``occurrences`` looks
whether it kept what it was given, and ``opening_of`` what it has written in the model's name.
"""

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from potluck.model.loading import ModelError
from potluck.template import TemplateFailed, render
from potluck.types import ChatTemplate, Problem

Variables = Mapping[str, object]
"""Variables of a chat template, by name: ``chat_template_kwargs`` of a node."""

SWITCH = re.compile(r"(?<!\S)/\w+(?!\S)")
"""A word by which a text switches its template, such as ``/no_think``; the template eats it."""
THOUGHTS = "think|thinking|thought|thoughts|reason|reasoning|reflection|scratchpad|analysis"
"""Names of the tags, in a pattern, between which models think."""
ASKED_TAG = re.compile(r"</([A-Za-z_][\w-]*)>")
ROLES = frozenset(("assistant", "model", "bot", "ai", "gpt", "user", "human", "system"))
"""Names of tags that say who speaks."""


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """One model's prompt for one problem."""

    text: str
    """What the template made, before a tokenizer reads it."""
    token_P: np.ndarray
    """int32 ids of the model's input."""
    opening: str = ""
    """End of ``text`` that is part of the answer: it is graded, shown and shared before it."""
    leaves_open: bool = False
    """True: ``opening`` has a tag that the model has to close."""


def prompt_of(
    tokenizer: PreTrainedTokenizerBase,
    problem: Problem,
    *,
    variables: Variables | None = None,
    chat_template: ChatTemplate = "model",
) -> Prompt:
    """Make a model's input before it writes. With a chat template: a system and a user message, or
    one where it knows no system (it raises, as Gemma's, or drops the text, as ChatGLM's), and the
    tools; without, or with "none" of it: the system text, an empty line, and the question, as the
    tokenizer begins a text. Raise ModelError where the template makes no prompt, or one without the
    tools."""
    templated = is_templated(tokenizer, chat_template)
    if templated:
        text = _templated(tokenizer, problem, variables or {})
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    else:
        text = _in_one(problem)
        ids = tokenizer(text)["input_ids"]
    opening, leaves_open = opening_of(text, problem, templated=templated)
    if opening and any(token in opening for token in special_tokens(tokenizer).values()):
        # What closes it is a special token too, and never in the text of an answer.
        opening, leaves_open = "", False
    return Prompt(text, np.array(ids, np.int32), opening, leaves_open)


def is_templated(tokenizer: PreTrainedTokenizerBase, chat_template: ChatTemplate) -> bool:
    """Tell whether prompts go through a chat template."""
    return chat_template == "model" and bool(tokenizer.chat_template)


def prompt_ids(
    tokenizer: PreTrainedTokenizerBase,
    problem: Problem,
    *,
    variables: Variables | None = None,
    chat_template: ChatTemplate = "model",
) -> np.ndarray:
    """Make the int32 ids of ``prompt_of``."""
    return prompt_of(tokenizer, problem, variables=variables, chat_template=chat_template).token_P


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Return the tokens that no text may become, by their ids."""
    added = tokenizer.added_tokens_decoder.items()
    found = {id: token.content for id, token in added if token.special}
    for id in tokenizer.all_special_ids:
        found.setdefault(id, str(tokenizer.convert_ids_to_tokens(id)))
    return found


def _in_one(problem: Problem) -> str:
    return f"{problem.system}\n\n{problem.question}" if problem.system else problem.question


def _templated(tokenizer: PreTrainedTokenizerBase, problem: Problem, variables: Variables) -> str:
    name = tokenizer.name_or_path
    tools = json.loads(problem.tools) if problem.tools else None
    together = [{"role": "user", "content": _in_one(problem)}]
    chats = [problem.messages, together] if problem.system else [problem.messages]

    made, failed = list[str](), ""
    for chat in chats:
        try:
            template = tokenizer.get_chat_template()
            words = {**tokenizer.special_tokens_map, **variables}
            made.append(render(template, chat, words, tools))
        except (TemplateFailed, ValueError) as error:
            failed = str(error)
            continue
        if not lacks_system(made[-1], problem):
            break
    if not made:
        raise ModelError(f"the chat template of {name!r} makes no prompt: {failed}")

    # The last one has the system's text, or none has.
    text = made[-1]
    named = [str(tool.get("function", tool)["name"]) for tool in tools or ()]
    if absent := [each for each in named if each not in text]:
        raise ModelError(
            f"the chat template of {name!r} tells the model of no tools: its prompt lacks "
            f"{absent[0]!r}; take a model that was trained with tools, or one without a template"
        )
    return text


def lacks_system(text: str, problem: Problem) -> bool:
    """Tell whether a prompt is without the system's text."""
    return _lacks(text, problem.system, beside=problem.question)


def lacks_question(text: str, problem: Problem) -> bool:
    """Tell whether a prompt is without the question."""
    return _lacks(text, problem.question, beside=problem.system)


def _lacks(text: str, part: str, *, beside: str) -> bool:
    if not _flat(part):
        return False
    # A short text may stand in the other one by chance: that one does not count.
    needed = 1 + occurrences(beside, part)
    if _flat(part) == _flat(beside):
        needed = 2
    return occurrences(text, part) < needed


def occurrences(text: str, part: str) -> int:
    """Count how often ``part`` stands in ``text``. White space may differ, which templates strip,
    and ``part`` may be escaped as in JSON or HTML."""
    plain = _flat(part)
    if not plain:
        return 0
    escaped = {plain, *(_flat(json.dumps(part, ensure_ascii=a)[1:-1]) for a in (False, True))}
    places = {_flat(text), _flat(html.unescape(text))}
    return max(place.count(each) for place in places for each in escaped)


def _flat(text: str) -> str:
    return " ".join(SWITCH.sub(" ", text).split())


def opening_of(text: str, problem: Problem, *, templated: bool) -> tuple[str, bool]:
    """Find the end of a prompt that is part of the answer, and whether it leaves a tag open.

    With a template, the answer begins behind the question and the system's text: at the first tag
    of thinking there, or of a name that these texts ask to be closed. Without a template, a prompt
    ends in the user's own words, and only a tag of thinking at its very end is an opening.

    A pair that is opened and closed (``<think>\\n\\n</think>``) has no thoughts in it: it is part
    of the answer only where the texts ask for its tag.

    >>> asked = Problem("p", "1+2=", "3", "Think in <think></think>.")
    >>> opening_of("1+2=<|assistant|><think>\\n", asked, templated=True)
    ('<think>\\n', True)
    """
    said = f"{problem.system}\n{problem.question}"
    if not templated:
        found = re.search(rf"<(?:{THOUGHTS})>\s*\Z", text, re.IGNORECASE)
        return (found[0], True) if found else ("", False)

    names = [re.escape(n) for n in ASKED_TAG.findall(said) if n.lower() not in ROLES]
    name = "|".join([*dict.fromkeys(names), THOUGHTS])
    tag = re.compile(rf"[<\[◁](?:\w+:)?(?:{name})[>\]▷]", re.IGNORECASE)
    parts = (each.strip() for each in (problem.system, problem.question))
    begin = max(
        (text.rfind(each) + len(each) for each in parts if each and each in text), default=0
    )
    first = tag.search(text, begin)
    if first is None:
        return "", False

    opening = text[first.start() :]
    opened = tag.findall(opening)
    leaves_open = any(opening.count(_closing(each)) < opened.count(each) for each in opened)
    if not leaves_open and not any(each in said or _closing(each) in said for each in opened):
        return "", False
    return opening, leaves_open


def opens_otherwise(text: str, opening: str) -> bool:
    """Tell whether an answer does not begin with ``opening``, or thinks where that is empty."""
    if opening:
        return not text.startswith(opening)
    return bool(re.match(rf"\s*[<\[◁](?:{THOUGHTS})[>\]▷]", text, re.IGNORECASE))


def _closing(tag: str) -> str:
    return f"{tag[0]}/{tag[1:]}"
