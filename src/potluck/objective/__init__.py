"""Section 3 of the paper: pure functions on tensors, and the table of methods made of them.

    methods.py      the table of methods and the options of an objective; imports no torch
    advantages.py   group-relative advantages
    filters.py      divergence from the author, and the filter on it
    losses.py       the policy losses, one signature for all
    others.py       choices about others' completions, and their likelihood
    weights.py      weights of completions; each says if it needs a row or the whole batch
    trust.py        advantages and bound of authors that are not trusted
    habit.py        the test of habits of authors
    shapes.py       the check that every function makes of its arguments

Import from the files: this one stays empty, so that a recipe can be read without torch.
"""
