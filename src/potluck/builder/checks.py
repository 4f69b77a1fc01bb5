"""Checks that concern all nodes together, made before anything is written."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from heapq import nlargest
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from potluck.builder.exchange import make_agenda, trusts_of
from potluck.config import ConfigError, NodeConfig, RunConfig
from potluck.fields import refuse
from potluck.model import ModelError, Reader, Texts, loading
from potluck.node.learning.group import ProcessGroup
from potluck.objective.methods import method_of
from potluck.rollout.base import completion_budget
from potluck.rollout.cache import require_one_rope, require_repeatable
from potluck.rollout.options import HFOptions, VllmOptions
from potluck.tasks import Task
from potluck.tasks.base import Shortened, environment_of
from potluck.types import Problem

Readers = Mapping[str, Reader]
"""Readers of the nodes that learn, by name."""
Groups = list[list[str]]
"""Names of nodes that learn, those of one tokenizer together."""


def readers_of(config: RunConfig) -> dict[str, Reader]:
    """Load the reader of each node that learns, once for all that read one model with the same
    prompts, as it takes a second."""
    loaded: dict[tuple[str, str, str], Reader] = {}
    readers: dict[str, Reader] = {}
    for name, node in config.learners.items():
        variables = node.chat_template_kwargs
        key = node.reads, node.chat_template, json.dumps(dict(variables), sort_keys=True)
        if key not in loaded:
            loaded[key] = Reader.of(node.reads, **texts_of(config, node))
        readers[name] = loaded[key]
    return readers


def texts_of(config: RunConfig, node: NodeConfig) -> Texts:
    """Tell how the recipe has the node's model asked, and what ends its completions."""
    return Texts(
        stop=config.sampling.stop,
        stop_texts=config.sampling.stop_texts,
        variables=node.chat_template_kwargs,
        chat_template=node.chat_template,
    )


def tokenizers_of(readers: Readers) -> Groups:
    fingerprint = cache(loading.fingerprint)  # it hashes the whole vocabulary
    sizes = Counter(len(reader.tokenizer) for reader in {*readers.values()})
    groups: dict[str, list[str]] = {}
    for name, reader in readers.items():
        size = len(reader.tokenizer)
        # One of a size of its own is like no other.
        key = fingerprint(reader.tokenizer) if sizes[size] > 1 else str(size)
        groups.setdefault(key, []).append(name)
    return [*groups.values()]


def require_tokenizers(config: RunConfig, readers: Readers, groups: Groups) -> None:
    """Raise ModelError unless all nodes share a tokenizer, or read texts and no claims about ids;
    or if one has a stop token as text where texts are read, and graded with it."""
    reads_texts = len(groups) > 1 or config.learners.keys() != config.node.keys()
    for name, reader in readers.items() if reads_texts else ():
        for token in config.sampling.stop:
            if reader.tokenizer.get_vocab()[token] not in reader.special_ids:
                raise ModelError(
                    f"[sampling] stop names {token!r}, which is plain text to {name!r}; where "
                    f"completions go as text, only special tokens can end them: drop it"
                )
    named = (f"{name!r} ({config.node[name].model})" for name, *_ in groups[:2])
    differ = f"the tokenizers of {' and '.join(named)} differ"
    if len(groups) > 1 and config.sends_logp:
        raise ModelError(
            f"{differ}, so the log-probabilities that one tells of its tokens say nothing of the "
            f"other's, but method {method_of(config.objective)!r} reads them; set [objective] "
            f"method = 'lws', or take models of one tokenizer"
        )
    if len(groups) > 1 and config.swarm.text == "never":
        raise ModelError(f"{differ}, and [swarm] text is 'never'; drop it, so that texts go")


def notes_on_tokenizers(groups: Groups) -> list[str]:
    """Name the nodes that read each other's texts and not ids, in a line, if any."""
    of = " | ".join(", ".join(names) for names in groups)
    note = f"{len(groups)} tokenizers ({of}): each reads the others' texts (docs/tokenizers.md)"
    return [note] if len(groups) > 1 else []


def sends_text(config: RunConfig, groups: Groups | None) -> bool:
    """Tell if completions go as text too. ``groups``: None where not all can be compared here."""
    if config.swarm.text != "auto":
        return config.swarm.text == "always"
    if groups is not None:
        return len(groups) > 1
    return len({node.reads for node in config.learners.values()}) > 1 or config.swarm.open


def require_one_prompt(readers: Readers, task: Task) -> None:
    """Raise ModelError where nodes would take no ids from each other, by unlike prompts."""
    problem = task.problem(task.ids("train")[0])
    prompts = {name: reader.prompt(problem) for name, reader in readers.items()}
    for one, other in pairwise(prompts):
        if not np.array_equal(prompts[one], prompts[other]):
            raise ModelError(
                f"{one!r} and {other!r} ask {problem.id!r} with different prompts ("
                f"{len(prompts[one])} and {len(prompts[other])} tokens), so neither could learn "
                f"from the other; give their tokenizers one chat template, or the task a system "
                f"prompt where the templates differ in their own, or send texts, which are read "
                f"behind any prompt: [swarm] text = 'always'"
            )


def without_long_prompts(config: RunConfig, task: Task, readers: Iterable[Reader]) -> Task:
    """Leave out of the task the problems whose prompts are too long for any of the readers."""
    if not (most := config.sampling.max_prompt_tokens):
        return task
    each_once = {*readers}

    def fits(problem: Problem) -> bool:
        return all(len(reader.prompt(problem)) <= most for reader in each_once)

    return Shortened(task, fits, f"sampling.max_prompt_tokens = {most}")


def require_completion_budget(config: RunConfig, task: Task, readers: Readers) -> list[int]:
    """Count the lengths of the run's prompts, in tokens, once for each model; raise RolloutError
    if one of them leaves no room to write in."""
    agenda, sampling, wanted = make_agenda(config, task), config.sampling, config.evaluation
    # By then every problem has been asked: a run that is stopped by hand may have any number.
    rounds = min(config.rounds, len(task.ids("train")) // config.problems_per_round + 1)
    shares = (each for round in range(rounds) for each in agenda.shares(round, config.node))
    asked = [*{share.problem_id for share in shares}]
    if config.pace == "free":  # others decide the order, so it may be any; counting takes long
        asked += nlargest(200, task.ids("train"), lambda id: len(task.problem(id).question))
    asked += task.ids("validation")[: wanted.problems]
    asked += task.ids("out-of-distribution")[: wanted.out_of_distribution]
    lengths = []
    for reader in dict.fromkeys(readers[name] for name in config.learners):
        limit = min(sampling.max_total_tokens, reader.context or sampling.max_total_tokens)
        for problem in map(task.problem, asked):
            prompt_P = reader.prompt(problem)
            completion_budget(prompt_P, problem, max_total_tokens=limit)
            lengths.append(len(prompt_P))
    return lengths


def require_models_that_write(config: RunConfig) -> None:
    """Raise ModelError for a model with which this package's own engine cannot write, by its
    configuration alone; a server may."""
    for node in config.trained_here.values():
        if isinstance(node.engine, HFOptions):
            shape = loading.load_config(node.model)
            require_repeatable(shape, node.model)
            context = getattr(shape.get_text_config(), "max_position_embeddings", None)
            longest = config.sampling.max_total_tokens
            require_one_rope(shape, node.model, min(longest, context or longest))


def require_servers(config: RunConfig, *, longest_prompt: int) -> None:
    """Raise RolloutError unless every engine outside this process is there and can write."""
    # An evaluation may have a limit of its own.
    asked = config.evaluation.max_new_tokens
    longest = max(config.sampling.max_total_tokens, asked and longest_prompt + asked)
    for node in config.node.values():
        shape = loading.load_config(node.reads).get_text_config() if node.model else None
        most = min(longest, getattr(shape, "max_position_embeddings", None) or longest)
        node.engine.require_ready(adapter=node.lora is not None, longest=most)


def require_one_stop(readers: Readers) -> None:
    """Raise ModelError unless the same tokens end a completion on every node that reads the ids of
    others: each looks up, and does not believe, if a peer's completion is finished, as that decides
    what it earns. Behind a text each node puts a stop token of its own."""
    for one, other in pairwise(readers):
        if differ := readers[one].stop_ids ^ readers[other].stop_ids:
            tokens = readers[one].tokenizer.convert_ids_to_tokens(sorted(differ))
            raise ModelError(
                f"{one!r} and {other!r} end a completion with different tokens: only one of them "
                f"stops at {', '.join(map(repr, tokens))}; name them in [sampling] stop"
            )


def require_turns(readers: Readers, task: Task) -> None:
    """Raise ModelError unless every model can take turns with the task's environment."""
    problem = task.problem(task.ids("train")[0])
    for reader in readers.values() if environment_of(task) else ():
        reader.require_turns(problem)


def require_processes(config: RunConfig, processes: ProcessGroup, task: Task) -> None:
    """Raise ConfigError unless several processes, where there are, can be each node."""
    count = processes.size
    for name, node in config.learners.items() if count > 1 else ():
        at = f"[node.{name}]"
        wrong = {
            f"{at} is {count} processes, which cannot play in the task's environment together; "
            f"start one process": environment_of(task),
            f"{at} optimizer 'adamw-8bit' keeps its moments in one process, but there are {count}; "
            f"set optimizer = 'adamw', whose moments are shared "
            f"out": node.optimizer == "adamw-8bit",
            f"[node.{name}.engine] is sent the weights of one process, but there are {count}; drop "
            f"the table, or start one process": not node.engine.several_processes,
            f"{at} device is {node.device!r}, but each of {count} processes has its own; set "
            f"device = 'auto', 'cuda' or 'cpu'": node.device not in ("auto", "cpu", "cuda"),
        }
        refuse(wrong)


def notes_on_devices(config: RunConfig) -> list[str]:
    """Write a line where a node takes the CPU though one may expect a GPU."""
    names = ", ".join(n for n, node in config.trained_here.items() if node.device == "auto")
    what = loading.unused_accelerator()
    why = f"this machine seems to have {what}, but torch {torch.__version__} cannot use it"
    way_out = 'install a torch built for it, or set device = "cpu"'
    return [f'{names}: device = "auto" takes the CPU: {why}; {way_out}'] if names and what else []


def require_baseline(config: RunConfig, folder: Path, here: Collection[str]) -> None:
    """Raise ConfigError if a node of this process would have nothing to compare its completions
    with: of authors that it does not trust none counts."""
    weights = {name: node.weight for name, node in config.members.items()}
    for name in weights.keys() & {*here} if config.plan == "horizontal" else ():
        trusts = trusts_of(config, folder, name, here)
        trusted = sum(weight for author, weight in weights.items() if trusts(author))
        rows = int(config.group_size * trusted / sum(weights.values()) + 1e-9)
        if config.pace == "together" and rows < 2:
            raise ConfigError(
                f"plan 'horizontal' gives the authors that {name!r} trusts {rows} of the "
                f"{config.group_size} completions of a problem, and one has nothing to be compared "
                f"with; set plan = 'vertical', raise group_size, name them in a [swarm] roster, or "
                f"set [objective] trust = 'everybody'"
            )


def require_engines(
    config: RunConfig, folder: Path, here: Collection[str], task: Task | None
) -> None:
    """Raise ConfigError for what the engine of a node of this process cannot do."""
    for name in here:
        engine, plays = config.node[name].engine, task and environment_of(task)
        trusts, at = trusts_of(config, folder, name, here), f"{name!r} learns behind a server"
        strange = [each for each in config.members if not trusts(each)]
        overlaps = isinstance(engine, VllmOptions) and engine.overlap
        wrong = {
            f"[node.{name}.engine] overlap = true, but what plays in an environment cannot be "
            f"begun while the node learns; drop it": overlaps and plays,
            f"{at}, which plays no episodes; drop its table engine": engine.trains and plays,
            f"{at}, which cannot bound what {next(iter(strange), '')!r} teaches, and does not "
            f"trust it: name it in a [swarm] roster, or set [objective] trust = 'everybody' among "
            f"friends": engine.trains and strange,
        }
        refuse(wrong)


def notes_on_trust(config: RunConfig, folder: Path, here: Collection[str]) -> list[str]:
    """Name the members which the nodes of this process do not trust, in a line, if any."""
    first = min(here)
    trusts = trusts_of(config, folder, first, here)
    others = ", ".join(name for name in config.members if name != first and not trusts(name))
    why = "no [swarm] roster has their keys"
    way_out = "name a roster, or set [objective] trust = 'everybody' among friends (docs/trust.md)"
    if config.objective.trust == "nobody":
        why, way_out = "[objective] trust is 'nobody'", "docs/trust.md says what that is for"
    what = "Only likely successes of theirs teach, and no log-probability that they claim"
    return [f"not trusted: {others}, as {why}. {what} is read; {way_out}"] if others else []
