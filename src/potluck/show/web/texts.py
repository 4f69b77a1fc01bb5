"""Completions of a node's newest round, those of which tokens are recorded with their tokens.

Those of older rounds stay in the files.
"""

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

import msgspec

from potluck.reports.runs import COMPLETIONS, PROBLEMS, RECORDED, GradedProblem, WrittenCompletion
from potluck.reports.tail import newest
from potluck.reports.tokens import Recorded
from potluck.show.web.views import TextsView, TextView

MOST_TEXTS = 256
"""Completions of one answer."""
PROBLEM_BYTES, ROUND_BYTES = 64 << 20, 4 << 20
"""Most of the problems that is read, and of a round, both from the file's end."""
TEXT, ANSWER_BYTES = 20_000, 5_000_000
"""Longest text, question, answer and episode; most of one answer."""


def newest_texts(folder: Path) -> TextsView:
    """Return the completions of the newest round in a node's folder; a later line replaces an
    earlier one."""
    lines = [*newest(folder / COMPLETIONS, WrittenCompletion, ROUND_BYTES)]
    found = {_key(line): line for line in lines if line.round == lines[-1].round}
    recorded = {_key(line): line for line in newest(folder / RECORDED, Recorded, ROUND_BYTES)}
    texts = [_text(line, recorded.get(key)) for key, line in found.items()][:MOST_TEXTS]
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
    is_all_read = not found or (folder / COMPLETIONS).stat().st_size <= ROUND_BYTES
    is_cut = fit < len(found) or not (is_all_read or lines[0].round < lines[-1].round)
    return TextsView(node=folder.name, texts=whole[:fit], is_cut=is_cut)


def _key(line: WrittenCompletion | Recorded) -> tuple[int, str, str, int]:
    return line.round, line.problem, line.author, line.index


def _text(line: WrittenCompletion, recorded: Recorded | None) -> TextView:
    starts = accumulate((len(said.words) for said in line.turns), initial=0)
    turns = zip(line.turns, starts, strict=False)
    return TextView(
        round=line.round,
        problem=line.problem,
        author=line.author,
        index=line.index,
        reward=line.reward,
        text=line.text[:TEXT],
        end=line.end,
        question=recorded.question[:TEXT] if recorded else "",
        turns=[(said.role, said.words[: TEXT - at]) for said, at in turns if at < TEXT],
        recorded=recorded,
    )
