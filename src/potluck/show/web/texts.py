"""Completions of one round of a node, read when asked for; recorded ones with their tokens."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import msgspec

from potluck.reports.right import binary_in, rule_of
from potluck.reports.runs import (
    COMPLETIONS,
    PROBLEMS,
    RECORDED,
    GradedProblem,
    RecipeRead,
    WrittenCompletion,
)
from potluck.reports.tail import newest
from potluck.reports.tokens import Recorded
from potluck.right import RightRule, merged
from potluck.show.web.views import TextsView, TextView

MOST_ROUNDS = 1000
MOST_TEXTS = 256
"""Completions of one answer."""
ROUND_BYTES, OLDER_BYTES = 4 << 20, 256 << 20
"""Most that is read of a file, from its end: for the newest round; for an older one."""
PROBLEM_BYTES = 64 << 20
TEXT, ANSWER_BYTES = 20_000, 5_000_000
"""Longest text, question, answer and episode; most of one answer."""


class _Line(msgspec.Struct):
    round: Annotated[int, msgspec.Meta(ge=0, lt=10**9)]


def texts_of(
    folder: Path,
    round: int | None = None,
    *,
    recipe: RecipeRead | None = None,
    binary: Mapping[str, bool] = MappingProxyType({}),
) -> TextsView:
    """Return a round's completions, of the newest if None; a later line replaces an earlier one.
    ``recipe`` and ``binary``, which reward functions paid nothing but 0 and 1 in the run, tell
    which of them are right."""
    file, most = folder / COMPLETIONS, ROUND_BYTES if round is None else OLDER_BYTES
    *_, last = [-1, *(line.round for line in newest(file, _Line, ROUND_BYTES))]
    at = last if round is None else round
    recorded = {_key(r): r for r in newest(folder / RECORDED, Recorded, most) if r.round == at}
    found, first = dict[tuple[str, str, int], WrittenCompletion](), -1
    for line in newest(file, recipe.written if recipe else WrittenCompletion, most):
        first, key = line.round if first < 0 else first, _key(line)
        if line.round == at and (key in found or len(found) <= MOST_TEXTS):
            found[key] = line
    lines = [*found.values()][:MOST_TEXTS]
    rule = rule_of(recipe) if recipe else RightRule()
    whole_binary = merged(binary, binary_in(lines))
    function = rule.function(whole_binary)
    texts = [_text(line, recorded.get(_key(line)), line.is_right(function)) for line in lines]
    wanted = {text.problem for text in texts}
    # A folder of 0.2.0 has no such file: there the texts keep what recorded.jsonl has.
    problems = {
        each.problem: {"question": each.question[:TEXT], "answer": each.answer[:TEXT]}
        for each in newest(folder / PROBLEMS, GradedProblem, PROBLEM_BYTES)
        if each.problem in wanted
    }
    whole = [msgspec.structs.replace(text, **problems.get(text.problem, {})) for text in texts]
    sizes = accumulate(len(msgspec.json.encode(text)) for text in whole)
    fit = bisect_right([*sizes], ANSWER_BYTES)
    begins_before = bool(found) and first == at and file.stat().st_size > most
    return TextsView(
        node=folder.name,
        rounds=[*range(max(0, last + 1 - MOST_ROUNDS), last + 1)],
        texts=whole[:fit],
        right=rule.in_words(whole_binary) if lines and (recipe or not function) else "",
        is_cut=fit < len(found) or begins_before,
    )


def _key(line: WrittenCompletion | Recorded) -> tuple[str, str, int]:
    return line.problem, line.author, line.index


def _text(line: WrittenCompletion, recorded: Recorded | None, is_right: bool | None) -> TextView:
    starts = accumulate((len(said.words) for said in line.turns), initial=0)
    turns = zip(line.turns, starts, strict=False)
    return TextView(
        round=line.round,
        problem=line.problem,
        author=line.author,
        index=line.index,
        reward=line.reward,
        right=is_right,
        text=line.text[:TEXT],
        end=line.end,
        question=recorded.question[:TEXT] if recorded else "",
        turns=[(said.role, said.words[: TEXT - at]) for said, at in turns if at < TEXT],
        recorded=recorded,
    )
