"""Generates the problems of the scale real with the library reasoning-gym: no data set is in the
repository.

    pip install -e '.[gym]'
    python scripts/make_real_problems.py [OUT]        # models/real/problems

A task is a question behind the worked examples of experiments/real/TASK-examples.txt, as plain
text. Its parts are train, validation and, with other parameters, out of distribution; no question
is in two of them. The best constant answer of a part, and what it earns, is printed: more than
MOST_OF_A_CONSTANT is refused, as a model then learns to say it (docs/evaluate.md).
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
VALIDATION, OTHER, MOST_OF_A_KIND = 300, 300, 250
MOST_OF_A_CONSTANT = 0.1
SUMS = {
    file: found
    for found, file in (
        line.split() for line in (EXAMPLES / "SHA256SUMS").read_text("utf-8").splitlines()
    )
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A data set of reasoning-gym, and its parameters."""

    dataset: str
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Task:
    """Kinds whose problems are mixed, those out of distribution apart."""

    kinds: tuple[Kind, ...]
    other: tuple[Kind, ...]


def sums(*, terms: tuple[int, int], digits: tuple[int, int]) -> Kind:
    (min_terms, max_terms), (min_digits, max_digits) = terms, digits
    parameters = {
        "min_terms": min_terms,
        "max_terms": max_terms,
        "min_digits": min_digits,
        "max_digits": max_digits,
    }
    return Kind("chain_sum", parameters)


def products(*, max_digits: int) -> Kind:
    return Kind("products", {"min_digits": 1, "max_digits": max_digits})


def multiples(*, least: int, most: int) -> Kind:
    return Kind("lcm", {"min_value": least, "max_value": most})


TASKS = {
    # Within reach of 135M weights, and of more than one kind: experiments/TUNING.md.
    "arithmetic": Task(
        kinds=(
            sums(terms=(2, 2), digits=(1, 1)),
            sums(terms=(2, 2), digits=(1, 2)),
            products(max_digits=1),
            products(max_digits=2),
            multiples(least=2, most=20),
        ),
        other=(sums(terms=(3, 3), digits=(1, 1)), multiples(least=21, most=30)),
    ),
}


def rows_of(kinds: tuple[Kind, ...], *, of_each: int) -> list[tuple[str, str]]:
    """Generate questions and answers, mixed; at most so many of each kind, repeated ones once."""
    rows: dict[str, str] = {}
    for kind in kinds:
        made = reasoning_gym.create_dataset(
            kind.dataset, seed=SEED, size=10 * of_each, **kind.parameters
        )
        asked = {
            SHORT[kind.dataset](problem["question"]): str(problem["answer"]).strip()
            for problem in made
        }
        new = [row for row in asked.items() if row[0] not in rows]
        rows.update(new[:of_each])
    mixed = list(rows.items())
    random.Random(SEED).shuffle(mixed)
    return mixed


def short_sum(question: str) -> str:
    """Return ``12 + 26`` of "State the final answer to the following ...: 12 + 26 ="."""
    return question.strip().rpartition(": ")[2].removesuffix("=").strip()


def short_product(question: str) -> str:
    """Return ``6 * 14`` of "Solve the following multiplication: 6 * 14. Give only ..."."""
    return question.strip().rpartition(": ")[2].partition(".")[0].strip()


def short_multiple(question: str) -> str:
    """Return ``lcm of 6 and 14`` of "Find the Least Common Multiple ...: 6, 14"."""
    numbers = question.strip().rpartition(": ")[2]
    return f"lcm of {numbers.replace(', ', ' and ')}"


SHORT = {"chain_sum": short_sum, "products": short_product, "lcm": short_multiple}
"""How a question of each data set is asked here: short, so that rounds are."""


def opening_of(name: str) -> str:
    """Read the worked examples."""
    return (EXAMPLES / f"{name}-examples.txt").read_text(encoding="utf-8")


def parts_of(name: str) -> dict[str, list[tuple[str, str]]]:
    """Generate the parts of a task; no worked example is in one."""
    task, opening = TASKS[name], opening_of(name)
    rows = [
        row
        for row in rows_of(task.kinds, of_each=MOST_OF_A_KIND)
        if f"Q: {row[0]}\n" not in opening
    ]
    known = {question for question, _ in rows}
    others = [row for row in rows_of(task.other, of_each=OTHER) if row[0] not in known]
    return {"validation": rows[:VALIDATION], "train": rows[VALIDATION:], "other": others[:OTHER]}


def require_no_constant(about: str, rows: list[tuple[str, str]]) -> None:
    """Print what the best constant answer earns; end the script if that is too much."""
    (constant, count), *_ = Counter(answer for _, answer in rows).most_common(1)
    print(f"{about}: {len(rows)} problems; {constant!r} earns {count / len(rows):.3f}")
    if count > MOST_OF_A_CONSTANT * len(rows):
        sys.exit(f"{about}: the answer {constant!r} earns more than {MOST_OF_A_CONSTANT}")


def text_of(name: str, rows: list[tuple[str, str]]) -> str:
    """Write a part, a JSON object a line."""
    opening = opening_of(name)
    lines = (
        json.dumps({"question": f"{opening}Q: {question}\nA:", "answer": answer}) + "\n"
        for question, answer in rows
    )
    return "".join(lines)


def write(name: str, out: Path) -> None:
    """Write the parts of one task. End the script, and write nothing, if they are not the problems
    that the committed cells had: SHA256SUMS has the sums of these."""
    texts = {}
    for part, rows in parts_of(name).items():
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
