"""From the tables of a recipe to its task, and what to know of it beforehand."""

from potluck.config import (
    ChainConfig,
    ConfigError,
    DigitsConfig,
    Gsm8kConfig,
    HubConfig,
    JsonlConfig,
    Math500Config,
    ReasoningGymConfig,
    RunConfig,
    TableConfig,
    TaskConfig,
)
from potluck.tasks import (
    Chain,
    CustomRewards,
    Digits,
    Elsewhere,
    Gsm8k,
    HashReward,
    Math500,
    ReasoningGym,
    Reward,
    Rules,
    Table,
    Task,
    hub_parts,
    jsonl_parts,
    overlaps,
)


def make_task(config: RunConfig, *, trust_code: bool = False) -> Task:
    """The task that ``[task]`` describes, paid by ``[[reward]]`` where there is any.

    Its problems out of distribution are those of ``[out_of_distribution]`` where there is one.

    Args:
        trust_code: whether functions that ``[[reward]]`` names may be imported and run.

    Raises:
        TaskError: its data cannot be read, or a function not imported.
        ConfigError: it names code that is not trusted.
    """
    base = _named(config.task)
    task = HashReward(base) if config.task.reward == "hash" else base
    if config.reward:
        rewards = _rewards(config, trust_code)
        row = (lambda problem: base.row(problem.id)) if isinstance(base, Table) else None
        task = CustomRewards(task, rewards, columns=row)
    if config.out_of_distribution is None:
        return task
    other = _named(config.out_of_distribution)
    is_hash = config.out_of_distribution.reward == "hash"
    return Elsewhere(task, HashReward(other) if is_hash else other)


def require_problems(config: RunConfig, task: Task) -> None:
    """Raises ConfigError unless the task has problems enough to train on for a round."""
    there = len(task.ids("train"))
    if not there:
        raise ConfigError(
            "the task of [task] has no problems to train on; name it under [out_of_distribution] "
            "and train on another one"
        )
    if there < config.problems_per_round:
        raise ConfigError(
            f"problems_per_round is {config.problems_per_round}, but the task has {there} problems "
            f"to train on; lower it"
        )


def _named(task: TaskConfig) -> Task:
    match task:
        case DigitsConfig(width=width, other_width=other_width):
            return Digits(width=width, other_width=other_width)
        case ChainConfig(terms=terms, other_terms=other_terms):
            return Chain(terms=terms, other_terms=other_terms)
        case Gsm8kConfig(path=path, validation=validation, system_prompt=system_prompt):
            return Gsm8k(path=path, validation=validation, system_prompt=system_prompt)
        case Math500Config(path=path, system_prompt=system_prompt):
            return Math500(path=path, system_prompt=system_prompt)
        case JsonlConfig(path=path, validation=validation, out_of_distribution=other):
            files = jsonl_parts(path, validation=validation, out_of_distribution=other)
            return Table("jsonl", files, _rules(task), held_out=task.held_out)
        case HubConfig(train=train, validation=validation, out_of_distribution=other):
            parts = hub_parts(
                task.dataset,
                task.subset,
                train=train,
                validation=validation,
                out_of_distribution=other,
            )
            return Table("hub", parts, _rules(task), held_out=task.held_out)
        case ReasoningGymConfig():
            return ReasoningGym(
                task.dataset,
                size=task.size,
                held_out=task.held_out,
                seed=task.seed,
                parameters=task.parameters,
                other_parameters=task.other_parameters,
                tags=task.tags,
                system_prompt=task.system_prompt,
            )


def _rules(task: TableConfig) -> Rules:
    return Rules(
        question=task.question,
        answer=task.answer,
        answer_after=task.answer_after,
        grading=task.grading,
        tags=task.tags,
        system_prompt=task.system_prompt,
    )


def code_of(config: RunConfig) -> list[str]:
    """The functions that the recipe names, each of which somebody may have written to do harm."""
    return [reward.function for reward in config.reward if reward.function != "task"]


def _rewards(config: RunConfig, trust_code: bool) -> list[Reward]:
    if (code := code_of(config)) and not trust_code:
        raise ConfigError(
            f"the recipe runs code, [[reward]] {', '.join(map(repr, code))}; read it, then allow "
            f"it with --trust-code (from Python: trust_code=True)"
        )
    return [
        Reward.load(reward.function, weight=reward.weight, format=reward.format)
        for reward in config.reward
    ]


def notes_on(config: RunConfig, task: Task) -> list[str]:
    """What one should know of a task's splits before trusting a number; mostly nothing.

    Raises:
        TaskError: a problem is in two splits.
    """
    notes = [str(overlap) for overlap in overlaps(task)]
    if isinstance(config.task, Gsm8kConfig) and config.task.validation == "test":
        notes.append(
            "validation is GSM8K's test set, as in the paper: what is chosen by it needs another "
            "test"
        )
    return notes
