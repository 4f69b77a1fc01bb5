"""What every run makes again and no test changes is made once in a process: it was half of what
a short run costs. Tests of the tasks themselves draw anew (``tests/tasks/conftest.py``)."""

from functools import cache, lru_cache
from pathlib import Path

import jinja2

from potluck.tasks.arithmetic import Arithmetic, ChainOptions, DigitsOptions
from potluck.tasks.environments import hosted

MADE_UP = (DigitsOptions, ChainOptions)
for options in MADE_UP:
    options.make = cache(options.make)
Arithmetic.problem = lru_cache(2**16)(Arithmetic.problem)
# The card of a checkpoint is a template that the Hub's library compiles for each card.
jinja2.Environment.compile = lru_cache(64)(jinja2.Environment.compile)
# A run grades its environment in four processes; one that was not changed has its grade.
GRADES, check = {}, hosted.check


def grade_of(spec, *given):
    file = Path(spec.name.rpartition(":")[0])
    key = repr((spec, given, file.is_file() and file.read_bytes()))
    if key not in GRADES:
        GRADES[key] = check(spec, *given)
    return GRADES[key]


hosted.check = grade_of
