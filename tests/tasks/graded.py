"""Texts graded by a task, for its tests."""

from nouns import completion


def tagged(answer):
    return f"<think>x</think><answer>{answer}</answer>"


def graded(task, *texts, end="stop", id=""):
    """Return what each text earns as an answer to one problem, the first to train on if unnamed."""
    problem = task.problem(id or task.ids("train")[0])
    written = [completion((i + 1,), problem=problem.id, end=end) for i in range(len(texts))]
    return task.rewards([problem] * len(texts), written, texts)
