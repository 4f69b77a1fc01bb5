"""What every run makes again and no test changes is made once in a process: it was half of what
a short run costs. Tests of the tasks themselves draw anew (``tests/tasks/conftest.py``)."""

from functools import cache, lru_cache

import jinja2

from potluck.tasks.arithmetic import ChainOptions, DigitsOptions

MADE_UP = (DigitsOptions, ChainOptions)
for options in MADE_UP:
    options.make = cache(options.make)
# The card of a checkpoint is a template that the Hub's library compiles for each card.
jinja2.Environment.compile = lru_cache(64)(jinja2.Environment.compile)
