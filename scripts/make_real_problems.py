"""Generates the problems of the scale real with the library reasoning-gym: no data set is in the
repository.

    pip install -e '.[gym]'
    python scripts/make_real_problems.py [OUT]        # models/real/problems

A task is a question behind the worked examples of experiments/real/TASK-examples.txt, as plain
text. Its parts are train, validation and, with other parameters, out of distribution; no question
is in two of them. The best constant answer of a part, and what it earns, is printed: more than
MOST_OF_A_CONSTANT is refused, as a model then learns to say it (docs/log.md).
"""

import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import reasoning_gym

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "experiments" / "real"
SEED = 7
VALIDATION, OTHER, MOST_TRAIN = 300, 300, 4000
MOST_OF_A_CONSTANT = 0.1
SUMS = {
    file: found
    for found, file in (
        line.split() for line in (EXAMPLES / "SHA256SUMS").read_text("utf-8").splitlines()
    )
}


@dataclass(frozen=True, slots=True)
class Task:
    """A data set of reasoning-gym, its parameters, and those out of distribution."""

    dataset: str
    parameters: Mapping[str, object]
    other: Mapping[str, object]


TASKS = {
    "sums": Task(
        "chain_sum",
        {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 2},
        {"min_terms": 4, "max_terms": 4, "min_digits": 1, "max_digits": 2},
    ),
}


def rows_of(task: Task, parameters: Mapping[str, object], size: int) -> dict[str, str]:
    """Generate answers by question, in an order of their own; repeated questions are left out."""
    made = reasoning_gym.create_dataset(task.dataset, seed=SEED, size=size, **parameters)
    rows = {asked(problem["question"]): str(problem["answer"]).strip() for problem in made}
    items = list(rows.items())
    random.Random(SEED).shuffle(items)
    return dict(items)


def asked(question: str) -> str:
    """Return the bare task: ``12 + 26 - 95`` of "State the final answer to the following ... ="."""
    return question.strip().rpartition(": ")[2].removesuffix("=").strip()


def parts_of(task: Task) -> dict[str, list[tuple[str, str]]]:
    """Generate the parts of a task."""
    rows = list(rows_of(task, task.parameters, 2 * MOST_TRAIN).items())
    known = {question for question, _ in rows}
    others = [row for row in rows_of(task, task.other, 2 * OTHER).items() if row[0] not in known]
    return {
        "validation": rows[:VALIDATION],
        "train": rows[VALIDATION:][:MOST_TRAIN],
        "other": others[:OTHER],
    }


def require_no_constant(about: str, rows: list[tuple[str, str]]) -> None:
    """Print what the best constant answer earns; end the script if that is too much."""
    (constant, count), *_ = Counter(answer for _, answer in rows).most_common(1)
    print(f"{about}: {len(rows)} problems; {constant!r} earns {count / len(rows):.3f}")
    if count > MOST_OF_A_CONSTANT * len(rows):
        sys.exit(f"{about}: the answer {constant!r} earns more than {MOST_OF_A_CONSTANT}")


def text_of(name: str, rows: list[tuple[str, str]]) -> str:
    """Write a part, a JSON object a line."""
    opening = (EXAMPLES / f"{name}-examples.txt").read_text(encoding="utf-8")
    lines = (
        json.dumps({"question": f"{opening}Q: {question}\nA:", "answer": answer}) + "\n"
        for question, answer in rows
    )
    return "".join(lines)


def write(name: str, out: Path) -> None:
    """Write the parts of one task. End the script, and write nothing, if they are not the problems
    that the committed cells had: SHA256SUMS has the sums of these."""
    texts = {}
    for part, rows in parts_of(TASKS[name]).items():
        require_no_constant(f"{name}, {part}", rows)
        texts[f"{name}-{part}.jsonl"] = text_of(name, rows)
    for file, text in texts.items():
        found = hashlib.sha256(text.encode()).hexdigest()
        if SUMS.get(file) != found:
            sys.exit(
                f"{file} would have SHA-256 {found}, expected {SUMS.get(file)}: another version of "
                f"reasoning-gym makes other problems (these are of 0.1.25)"
            )
    for file, text in texts.items():
        (out / file).write_text(text, encoding="utf-8")


def main() -> None:
    out = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "models" / "real" / "problems"
    out.mkdir(parents=True, exist_ok=True)
    for name in TASKS:
        write(name, out)


if __name__ == "__main__":
    main()
