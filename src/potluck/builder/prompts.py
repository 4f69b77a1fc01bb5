"""One look at each node's first prompts, before anything costs."""

from collections.abc import Iterator, Mapping

from potluck.config import RunConfig
from potluck.model import ModelError, Reader
from potluck.model.prompt import lacks_question, lacks_system, special_tokens
from potluck.tasks import Split, Task
from potluck.tasks.grading import TAGS
from potluck.types import Problem


def first_problems(config: RunConfig, task: Task) -> Iterator[Problem]:
    """Yield the first problem of each part that the run asks."""
    wanted: dict[Split, bool] = {
        "train": True,
        "validation": config.evaluation.problems > 0,
        "out-of-distribution": config.evaluation.out_of_distribution > 0,
    }
    for split, is_asked in wanted.items():
        ids = task.ids(split) if is_asked else ()
        if ids:
            yield task.problem(ids[0])


def require_prompts(config: RunConfig, task: Task, readers: Mapping[str, Reader]) -> None:
    """Raise ModelError for a prompt that does not ask its problem, or not so that the model can
    answer it."""
    looked_at = set[Reader]()
    for name, reader in readers.items():
        if reader in looked_at:
            continue
        looked_at.add(reader)
        for problem in first_problems(config, task):
            if why := fault_of(reader, problem):
                raise ModelError(
                    f"{name!r} ({reader.tokenizer.name_or_path}): the prompt of {problem.id!r} "
                    f"{why}"
                )


def fault_of(reader: Reader, problem: Problem) -> str:
    """Say what is wrong with a prompt, and the way out; empty: nothing is."""
    prompt, tokenizer = reader.asked(problem), reader.tokenizer
    another = "give its tokenizer another chat template"
    if lacks_question(prompt.text, problem):
        return f"lacks the question, which the chat template drops or changes; {another}"
    if lacks_system(prompt.text, problem):
        return f"lacks the system prompt, which the chat template drops or changes; {another}"

    largest = int(prompt.token_P.max(initial=0))
    if largest >= reader.vocabulary:
        token = tokenizer.convert_ids_to_tokens(largest)
        return (
            f"has the token {token!r} (id {largest}), but the model knows {reader.vocabulary} "
            f"tokens; take the tokenizer that belongs to the model"
        )

    if stop := _stop_at_end(reader, problem):
        way_out = f"{another}, one that begins the model's turn (add_generation_prompt)"
        if not tokenizer.chat_template:
            way_out = "set add_eos_token = false in its tokenizer_config.json"
        return f"ends in {stop!r}, which ends an answer before it has begun; {way_out}"

    asked = f"{problem.system}\n{problem.question}"
    special = special_tokens(tokenizer).values()
    lost = [tag for tag in TAGS if tag in special]
    if lost and all(tag in asked for tag in TAGS):
        return (
            f"asks for {lost[0]}, a special token of this tokenizer, which is no part of a graded "
            f"text; set task.tags = false, or special = false for it in the tokenizer's files"
        )
    return ""


def _stop_at_end(reader: Reader, problem: Problem) -> str:
    """Return the stop token in which a prompt ends, space behind it aside; empty: it does not."""
    # A stop of the recipe may be plain text, in which a question may well end.
    special = special_tokens(reader.tokenizer)
    stops = {id: special[id] for id in sorted(reader.stop_ids) if id in special}
    prompt = reader.asked(problem)
    if len(prompt.token_P) > 1 and (last := int(prompt.token_P[-1])) in stops:
        return stops[last]
    end = prompt.text.rstrip()
    return next((token for token in stops.values() if end.endswith(token)), "")
