"""A run's rounds learned from once more, by one method after the other: on identical data.

    plan.py         which nodes, methods and rounds; torch-free, so what is wrong is said at once
    tape.py         the rounds that a run keeps, as the line of a node
    on_policy.py    the gradient that the model's own fresh completions would give
    rehearsal.py    a node lives its rounds again, and is measured
    lines.py        what was measured, a line a round; table and means
    picture.py      the same as curves

A replay is an ordinary node whose exchange is a tape: sieve, grading and learner are those of
the run. With the method that the run had, it ends with the run's weights to the bit.
docs/replay.md says what the numbers mean.
"""
