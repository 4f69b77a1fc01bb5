"""Problems that the library reasoning-gym makes up, and grades by a verifier for each kind.

They follow from the data set's name, its parameters and the seed, so nodes with one version of the
library have the same. An id is the position from 0: ``reasoning-gym/chain_sum/17``; with the other
parameters ``reasoning-gym/chain_sum/other/17``.

Source: https://github.com/open-thought/reasoning-gym, version 0.1.25 (extra ``gym``).
"""

import importlib.metadata
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from potluck.fields import Count, hint
from potluck.tasks.base import HeldTask, Split, TaskError, TaskOptions, normalised
from potluck.tasks.grading import SYSTEM_PROMPTS, answer_in
from potluck.types import Completion, Problem

MOST_PROBLEMS = 200_000
LONGEST_ANSWER = 10_000
"""Characters. Verifiers take up to a fifth of a second for this much."""
RUNS_ANSWERS = (
    "intermediate_integration", "n_queens", "polynomial_multiplication", "simple_integration",
    "string_insertion",
)  # fmt: skip
REFUSED = {
    **dict.fromkeys(RUNS_ANSWERS, "its verifier runs an answer as Python"),
    "composite": "it mixes data sets of any kind",
    "propositional_logic": "its verifier may take hours for an answer",
}
"""An answer comes from a model or from a peer, so nothing may run it."""
ONLY = {
    "binary_matrix": re.compile(r"[0-9,\[\]\s]{0,2000}"),
    "coin_flip": re.compile(r"[0-9./]{0,40}(?:e-[0-9]{1,2})?"),
    "countdown": re.compile(r"(?!.*\*\s*\*)[0-9+\-*/() ]{0,150}"),
    "puzzle24": re.compile(r"(?!.*\*\s*\*)[0-9+\-*/() ]{0,150}"),
    "spiral_matrix": re.compile(r"[0-9,\[\]\s-]{0,2000}"),
}
"""Permitted text of an answer where the verifier runs it as Python, or reads ``1e999999999``:
numbers, lists of them and the four operations are harmless. Anything else earns 0."""


class ReasoningGymOptions(
    TaskOptions, frozen=True, kw_only=True, tag_field="name", tag="reasoning-gym"
):
    """Problems that the library reasoning-gym makes up and scores (extra ``gym``)."""

    dataset: str
    """Kind of problem, as the library names it: "chain_sum"."""
    size: Count = 10_000
    """Problems to make for training; repeated ones are left out."""
    held_out: Count = 512
    """Problems to make for validation, and as many out of distribution."""
    seed: int = 0
    """Seed of the problems. Nodes of one run share it."""
    parameters: Mapping[str, Any] = MappingProxyType({})
    """Parameters of the kind, as the library names them: {max_terms = 3}."""
    other_parameters: Mapping[str, Any] | None = None
    """Parameters of the out-of-distribution problems; without them there is no such split."""
    tags: bool = True
    """True: the answer stands in <think></think><answer></answer>, with nothing outside; False: the
    whole completion is the answer."""
    system_prompt: str = ""
    """System prompt instead of the built-in one, which asks for the tags."""

    def make(self) -> "ReasoningGym":
        return ReasoningGym(self)


class ReasoningGym(HeldTask):
    """Problems of one kind; a completion earns what the kind's verifier gives it, 0 to 1.

    **Deviation** from the library: a verifier that raises gives 0, an answer beyond
    LONGEST_ANSWER gets 0 unseen, a score outside of 0 to 1 is moved to the nearer end.
    """

    def __init__(self, options: ReasoningGymOptions) -> None:
        """Raise TaskError without the library, for a kind of REFUSED, or odd parameters."""
        dataset, size, held_out = options.dataset, options.size, options.held_out
        if size + held_out > MOST_PROBLEMS:
            raise TaskError(f"{size + held_out} problems are too many; at most {MOST_PROBLEMS}")
        others = options.other_parameters
        if others is not None and dict(others) == dict(options.parameters):
            raise TaskError(f"{dataset} has other_parameters equal to its parameters; change one")
        system = options.system_prompt or (SYSTEM_PROMPTS["exact"] if options.tags else "")
        self._options = options
        self._entries: dict[str, tuple[Any, Mapping[str, Any]]] = {}
        asked: set[str] = set()

        def drawn(made: Any, first: int, end: int, under: str) -> Iterator[Problem]:
            for i in range(first, end):
                entry, id = made[i], f"reasoning-gym/{dataset}/{under}{i}"
                question, answer = str(entry["question"]), str(entry["answer"] or "")
                if (key := normalised(question)) not in asked:
                    asked.add(key)
                    self._entries[id] = made, entry
                    yield Problem(id, question, answer, system)

        made = _made(dataset, options.seed, size + held_out, options.parameters)
        splits: dict[Split, list[Problem]] = {
            "validation": list(drawn(made, 0, held_out, "")),
            "out-of-distribution": [],
        }
        if others is not None:
            other = _made(dataset, options.seed, held_out, others)
            splits["out-of-distribution"] = list(drawn(other, 0, held_out, "other/"))
        splits["train"] = list(drawn(made, held_out, held_out + size, ""))
        sizes = {split: len(found) for split, found in splits.items()}
        version = importlib.metadata.version("reasoning-gym")
        rules = f"reasoning-gym 1: library {version}, {dataset}, tags {options.tags}, {sizes}"
        super().__init__(rules, splits)

    def rewards(
        self, problems: Sequence[Problem], completions: Sequence[Completion], texts: Sequence[str]
    ) -> list[float]:
        return [
            self._score(problem, text) if completion.end == "stop" else 0.0
            for problem, completion, text in zip(problems, completions, texts, strict=True)
        ]

    def _score(self, problem: Problem, text: str) -> float:
        answer = answer_in(text) if self._options.tags else text
        only = ONLY.get(self._options.dataset)
        if answer is None or len(answer) > LONGEST_ANSWER:
            return 0.0
        if only and not only.fullmatch(answer.strip()):
            return 0.0
        made, entry = self._entries[problem.id]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                score = float(made.score_answer(answer.strip(), entry))
        except Exception:  # of a stranger's parser, about a stranger's text
            return 0.0
        return min(max(score, 0.0), 1.0) if math.isfinite(score) else 0.0


def _made(dataset: str, seed: int, size: int, parameters: Mapping[str, Any]) -> Any:
    try:
        # Here and not above: an extra, and a second to import.
        from reasoning_gym import create_dataset
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise TaskError(
            f"task.name is 'reasoning-gym', but the library is not there ({error}); "
            f"pip install 'potluck[gym]'"
        ) from None
    if dataset in REFUSED:
        raise TaskError(f"task.dataset is {dataset!r}, but {REFUSED[dataset]}; choose another")
    if dataset not in DATASETS:
        there = hint(dataset, sorted(DATASETS))
        raise TaskError(f"task.dataset is {dataset!r}, which reasoning-gym has not; {there}")
    try:
        return create_dataset(dataset, seed=seed, size=size, **parameters)
    except Exception as error:  # what it raises is not documented: AssertionError, TypeError ...
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        said = f"reasoning-gym cannot make {dataset} with {dict(parameters)} ({reason})"
        raise TaskError(said) from error
