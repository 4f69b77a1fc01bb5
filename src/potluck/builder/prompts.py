"""One look at each node's first prompts, before anything costs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from potluck.config import RunConfig
from potluck.files import printable
from potluck.model import ModelError, Reader
from potluck.model.prompt import lacks_question, lacks_system, special_tokens
from potluck.tasks import Split, Task
from potluck.tasks.grading import TAGS
from potluck.types import Problem

TURN_MARK = re.compile(
    r"""
    \A (?: <s> | <bos> )
    | <\| (?:
        im_start | im_end | im_sep | eot | eot_id | end | turn | user | assistant | system
        | begin_of_text | end_of_text | endoftext | (?:start|end)_header_id | (?:start|end)_of_role
        | (?:START|END)_OF_TURN_TOKEN | USER_TOKEN | CHATBOT_TOKEN | SYSTEM_TOKEN
    ) \|>
    | < (?: start | end ) _of_turn >
    | \[ /? INST \]
    | << /? SYS >>
    | < \uff5c (?: User | Assistant | (?:begin|end)\u2581of\u2581sentence ) \uff5c >
    """,
    re.VERBOSE,
)
"""Marks that part the turns of a chat in the templates of many models."""
PLAIN_QUESTION = "potluck potluck"
"""A question by which is seen what a template writes itself."""
SHORTEST_END = 3
"""Least number of characters of a template's end by which it is known again in a question."""
IDS_SHOWN = 12
"""Number of ids of a prompt's end that are shown."""
INDENT = (0, 0, 0, 2)
"""Room on the left of what is shown."""


def first_problems(config: RunConfig, task: Task) -> Iterator[Problem]:
    """Yield the first problem of each part that the run asks."""
    wanted: dict[Split, bool] = {
        "train": True,
        "validation": config.evaluation.problems > 0,
        "out-of-distribution": config.evaluation.out_of_distribution > 0,
    }
    for split, is_asked in wanted.items():
        ids = task.ids(split) if is_asked else ()
        if ids:
            yield task.problem(ids[0])


def require_prompts(config: RunConfig, task: Task, readers: Mapping[str, Reader]) -> None:
    """Raise ModelError for a prompt that does not ask its problem, or not so that the model can
    answer it."""
    looked_at = set[Reader]()
    for name, reader in readers.items():
        if reader in looked_at:
            continue
        looked_at.add(reader)
        require_variables(name, reader)
        for problem in first_problems(config, task):
            if why := fault_of(reader, problem):
                raise ModelError(
                    f"{name!r} ({reader.tokenizer.name_or_path}): the prompt of {problem.id!r} "
                    f"{why}"
                )


def require_variables(name: str, reader: Reader) -> None:
    """Raise ModelError for a variable of ``chat_template_kwargs`` that the template never names."""
    template = str(reader.tokenizer.chat_template or "") if reader.is_templated else ""
    for variable in reader.variables:
        if not re.search(rf"\b{re.escape(variable)}\b", template):
            what = "the chat template never reads it" if template else "it has no chat template"
            raise ModelError(
                f"{name!r} ({reader.tokenizer.name_or_path}): chat_template_kwargs sets "
                f"{variable!r}, but {what}; drop it, or see its tokenizer's files for the name"
            )


def notes_on_prompts(config: RunConfig, task: Task, readers: Mapping[str, Reader]) -> list[str]:
    """Tell of each part whose first problem seems to have been put into a template before."""
    found = dict[str, list[str]]()
    for name, reader in readers.items():
        for problem in first_problems(config, task):
            if mark := rendered_mark(reader, problem):
                why = (
                    f"the first problem, {problem.id!r}, holds {mark!r}, which parts the turns of "
                    f"a chat. If it was put into a chat template before, this is done twice: give "
                    f"its plain question, and a system text of its own"
                )
                found.setdefault(why, []).append(name)
    return [f"{', '.join(names)}: {why}" for why, names in found.items()]


def rendered_mark(reader: Reader, problem: Problem) -> str:
    """Return what tells that a problem's text was put into a chat template before; empty: nothing
    does. That is a special token that the prompt has of itself, and then once more; a mark of
    turns of another model's template; the end of this one's."""
    said = f"{problem.system}\n{problem.question}"
    system = PLAIN_QUESTION if problem.system else ""
    try:
        plain = reader.asked(replace(problem, question=PLAIN_QUESTION, system=system))
    except ModelError:  # a template that wants more of a question
        return ""

    usual, prompt = plain.token_P.tolist(), reader.asked(problem).token_P.tolist()
    for id, token in special_tokens(reader.tokenizer).items():
        # The tags of thoughts may well be named in a question, and be opened by the template.
        if token in said and token not in plain.opening and 0 < usual.count(id) < prompt.count(id):
            return token

    for text in (problem.system, problem.question):
        for found in TURN_MARK.finditer(text):
            # To a model without a template turns are given so.
            if reader.is_templated or found[0] not in reader.tokenizer.get_vocab():
                return found[0]

    _, _, end = plain.text.rpartition(PLAIN_QUESTION)
    end = end.removesuffix(plain.opening).strip()
    is_there = len(end) >= SHORTEST_END and problem.question.rstrip().endswith(end)
    return end if is_there else ""


def shown_prompts(
    config: RunConfig, task: Task, readers: Mapping[str, Reader]
) -> Iterator[RenderableType]:
    """Yield each node's first prompt, to be printed: decoded, and the ids of its end."""
    problem = next(first_problems(config, task), None)
    if problem is None:
        return
    yield Text(f"first problem, {problem.id!r}, as it is asked:")
    names_of = dict[Reader, list[str]]()
    for name, reader in readers.items():
        names_of.setdefault(reader, []).append(name)
    for reader, names in names_of.items():
        yield Text(f"\n{', '.join(names)} ({config.node[names[0]].reads}):")
        yield from _shown_prompt(reader, problem)


def _shown_prompt(reader: Reader, problem: Problem) -> Iterator[RenderableType]:
    prompt = reader.asked(problem)
    ids = prompt.token_P.tolist()
    for line in reader.shown(ids).split("\n"):
        # Of an empty text no line would be printed.
        yield Padding(Text(printable(line, limit=len(line) + 1) or " "), INDENT, expand=False)

    yield Text(f"{len(ids)} tokens; the last ids, those of special tokens in brackets:")
    shown = []
    for id in ids[-IDS_SHOWN:]:
        text = printable(repr(reader.shown([id])))
        shown.append(f"[{id}] {text}" if id in reader.special_ids else f"{id} {text}")
    yield Padding(Text("  ".join(shown)), INDENT, expand=False)
    if prompt.opening:
        yield Text(f"the answer begins with {prompt.opening!r}, which the template has opened")


def fault_of(reader: Reader, problem: Problem) -> str:
    """Say what is wrong with a prompt, and the way out; empty: nothing is."""
    prompt, tokenizer = reader.asked(problem), reader.tokenizer
    another = "give its tokenizer another chat template"
    if lacks_question(prompt.text, problem):
        return f"lacks the question, which the chat template drops or changes; {another}"
    if lacks_system(prompt.text, problem):
        return f"lacks the system prompt, which the chat template drops or changes; {another}"

    largest = int(prompt.token_P.max(initial=0))
    if largest >= reader.vocabulary:
        token = tokenizer.convert_ids_to_tokens(largest)
        return (
            f"has the token {token!r} (id {largest}), but the model knows {reader.vocabulary} "
            f"tokens; take the tokenizer that belongs to the model"
        )

    if stop := _stop_at_end(reader, problem):
        way_out = f"{another}, one that begins the model's turn (add_generation_prompt)"
        if not reader.is_templated:
            way_out = "set add_eos_token = false in its tokenizer_config.json"
        return f"ends in {stop!r}, which ends an answer before it has begun; {way_out}"

    asked = f"{problem.system}\n{problem.question}"
    special = special_tokens(tokenizer).values()
    lost = [tag for tag in TAGS if tag in special]
    if lost and all(tag in asked for tag in TAGS):
        return (
            f"asks for {lost[0]}, a special token of this tokenizer, which is no part of a graded "
            f"text; set task.tags = false, or special = false for it in the tokenizer's files"
        )
    return ""


def _stop_at_end(reader: Reader, problem: Problem) -> str:
    """Return the stop token in which a prompt ends, space behind it aside; empty: it does not."""
    # A stop of the recipe may be plain text, in which a question may well end.
    special = special_tokens(reader.tokenizer)
    stops = {id: special[id] for id in sorted(reader.stop_ids) if id in special}
    prompt = reader.asked(problem)
    if len(prompt.token_P) > 1 and (last := int(prompt.token_P[-1])) in stops:
        return stops[last]
    end = prompt.text.rstrip()
    return next((token for token in stops.values() if end.endswith(token)), "")
