"""Solutions of the arithmetic tasks in each notation: what the base models are brought up on.

734+258=      columns   4+8+0=12;3+5+1=9;7+2+0=9#992
              terse     480 12*351 9*720 9#992
34+7-5+8=     steps     34+7=41;41-5=36;36+8=44#44
              terse     +7 41*-5 36*+8 44#44
34+57-29=     turns     add(a=34,b=57)  91  subtract(a=91,b=29)  62  62

As a program it writes solved sums for an author that reads a file (docs/authors.md), of the first
problems to train on, in columns:

    python scripts/solutions.py 200 > experiments/solutions.jsonl
"""

import json
import re
import sys
from typing import Literal

from potluck.tasks.arithmetic import DigitsOptions
from potluck.types import Problem

DigitsNotation = Literal["columns", "terse"]
ChainNotation = Literal["steps", "terse"]


def digits_solution(problem: Problem, notation: DigitsNotation) -> str:
    """Return what a perfect model writes, the stop token aside."""
    a, b = problem.question.removesuffix("=").split("+")
    carry, steps = 0, []
    for x, y in zip(reversed(a), reversed(b), strict=True):
        total = int(x) + int(y) + carry
        columns, terse = f"{x}+{y}+{carry}={total}", f"{x}{y}{carry} {total}"
        steps.append(columns if notation == "columns" else terse)
        carry = total // 10
    return (";" if notation == "columns" else "*").join(steps) + f"#{problem.answer}"


def chain_solution(problem: Problem, notation: ChainNotation) -> str:
    """Return what a perfect model writes, the stop token aside."""
    chain = problem.question.removesuffix("=")
    total, steps = int(chain[:2]), []
    for number in map(int, re.findall(r"[+-][1-9]", chain)):
        reached = total + number
        long, terse = f"{total}{number:+d}={reached}", f"{number:+d} {reached}"
        steps.append(long if notation == "steps" else terse)
        total = reached
    return (";" if notation == "steps" else "*").join(steps) + f"#{problem.answer}"


def calculator_solution(question: str) -> list[str]:
    """Return what a perfect model writes, turn by turn, and what the tools say in between."""
    total, *numbers = map(int, re.findall(r"[+-]?\d+", question))
    said = []
    for number in numbers:
        name = "add" if number > 0 else "subtract"
        said.append(f"{name}(a={total},b={abs(number)})")
        total += number
        said.append(str(total))
    return [*said, str(total)]


def main() -> None:
    task = DigitsOptions(train_problems=int(sys.argv[1])).make()
    for problem in map(task.problem, task.ids("train")):
        solution = digits_solution(problem, "columns")
        print(json.dumps({"problem": problem.question, "solution": solution}))


if __name__ == "__main__":
    main()
