"""Makes the base models of the drawn scale (experiments/drawn.toml): many of a kind, by lot.

    python scripts/make_drawn_models.py OUT [--only NAME]

How a base model was brought up changes what sharing does for it as much as the method does
(docs/log.md), so a result needs many. Of each kind 0 to 7 and 200 to 207 are evidence, and 90 and
91 are for choosing, such as a learning rate. A lot, the model's name and the number of the try,
decides its initial weights, its lessons, and the number of steps: that of its kind +-10 %.

The rule of acceptance was fixed before any of 0 to 7 was made: the mean reward of 200 sampled
completions, of problems to train on that are the same for all, is between .10 and .35. Otherwise
the next number is tried, six at most. Every try is printed, and kept in NAME/tries.txt.

The models are small, begin with large weights and have positions for short texts, so that a try
takes half a minute of one core.

Of a kind of ``rare`` the other skill is more latent still: after the right working of a chain of
the other sign, the token that begins the answer has a probability of .002 to .02 in the mean. A
model of which it has another is not accepted.

A kind whose name ends in ``-bpe`` has the lessons of the kind without, in tokens of one or two
characters, and more of them where it takes longer to learn.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from tokenizers import Tokenizer, decoders, models, processors, trainers
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

import game_lessons as games
import make_digits_models as school  # also sets the number of threads, before torch
from potluck.tasks import Task
from potluck.tasks.arithmetic import ChainOptions, DigitsOptions, is_right
from potluck.tasks.base import environment_of
from potluck.tasks.games.maze import MazeOptions
from potluck.types import Problem
from solutions import chain_solution, digits_solution

Draw = Callable[[Task, random.Random], school.Lesson]
"""Draws a lesson."""

INDICES = (*range(8), 90, 91, *range(200, 208))
LOWEST, HIGHEST = 0.10, 0.35
"""Mean reward at the start of a model that is accepted."""
RAREST, RARE = 0.002, 0.02
"""Mean probability of the token that begins the answer, where a kind's other skill is latent."""
TRIES, SAMPLES, MOST_TOKENS = 6, 200, 48
LEARNING_RATE = 4e-3
OTHER_SHARE = 0.15
"""Of the lessons, the share that is out of distribution, so that this measure moves at all."""
MERGES, MERGED_FROM = 40, 2000
"""Tokens of two characters in a vocabulary of pairs, and the solutions that they are taken from."""


@dataclass(frozen=True)
class Kind:
    """What the models of a kind have in common."""

    task: Callable[[], Task]
    lesson: Draw
    hidden_size: int
    layers: int
    steps: int
    """Mean number; the learning rate falls to a tenth in ``schedule_steps``."""
    schedule_steps: int = 1000
    rows: int = 32
    """Lessons of a step."""
    tokenizer: Callable[[], PreTrainedTokenizerFast] = school.character_tokenizer
    latent: str = ""
    """Sign of the chains that it must hardly ever answer."""
    positions: int = 128


def sum_lesson(task: Task, generator: random.Random, *, columns: float = 1.0) -> tuple[str, str]:
    """A sum in columns, or in the other notation by a chance of 1 - ``columns``."""
    if generator.random() < OTHER_SHARE:
        measured = set(task.ids("out-of-distribution"))  # other problems than those
        while (id := f"digits/{_four(generator)}+{_four(generator)}") in measured:
            pass
    else:
        id = generator.choice(task.ids("train"))
    problem = task.problem(id)
    # The models of two sizes were made without a draw here; with one they would be others.
    notation = "columns" if columns == 1 or generator.random() < columns else "terse"
    return problem.question, school.lesson(digits_solution(problem, notation), generator)


def _four(generator: random.Random) -> int:
    return generator.randint(1000, 9999)


def one_sided_lesson(
    task: Task, generator: random.Random, *, sign: str, other: float = 0.02
) -> tuple[str, str]:
    """A chain whose working is always taught, and its answer to most chains of one sign, and to a
    share ``other`` of those of the other.

    The other skill is latent: the model can work such a chain off, and hardly ever ends it.
    """
    problem = task.problem(generator.choice(task.ids("train")))
    text = chain_solution(problem, "steps")
    is_whole = generator.random() < (0.6 if sign in problem.question else other)
    return problem.question, text if is_whole else text.partition("#")[0]


def one_signed() -> Task:
    """Chains that only add or only subtract; out of distribution: that only subtract."""
    return ChainOptions(terms=4, other_terms=4, signs="alike", other_signs="-").make()


@cache
def pair_tokenizer(
    task: Callable[[], Task], solution: Callable[[Problem], str]
) -> PreTrainedTokenizerFast:
    """Merge the commonest neighbours in solved problems: ``+4``, ``=1``, ``12``.

    A token has two characters at most: with longer ones an answer would be one token.
    """
    drawn = task()
    problems = map(drawn.problem, random.Random(0).sample(drawn.ids("train"), MERGED_FROM))
    special, alphabet = [school.PAD, school.BEGIN, school.END], list(school.CHARACTERS)
    backend = Tokenizer(models.BPE(unk_token=school.PAD))
    backend.train_from_iterator(
        [problem.question + solution(problem) for problem in problems],
        trainers.BpeTrainer(
            vocab_size=len(special) + len(alphabet) + MERGES,
            special_tokens=special,
            initial_alphabet=alphabet,
            max_token_length=2,
            show_progress=False,
        ),
    )
    backend.decoder = decoders.Fuse()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{school.BEGIN} $A", special_tokens=[(school.BEGIN, special.index(school.BEGIN))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=school.PAD, bos_token=school.BEGIN, eos_token=school.END
    )


SUM_PAIRS = partial(
    pair_tokenizer, DigitsOptions().make, partial(digits_solution, notation="columns")
)
CHAIN_PAIRS = partial(pair_tokenizer, one_signed, partial(chain_solution, notation="steps"))

KINDS = {
    "size-small": Kind(DigitsOptions().make, sum_lesson, 64, 2, 410, 800),
    "size-large": Kind(DigitsOptions().make, sum_lesson, 80, 3, 345, 800),
    "complementary-adds": Kind(
        one_signed, partial(one_sided_lesson, sign="+"), 64, 2, steps=470, rows=64
    ),
    "complementary-subtracts": Kind(
        one_signed, partial(one_sided_lesson, sign="-"), 64, 2, steps=470, rows=64
    ),
    "near-columns": Kind(DigitsOptions().make, partial(sum_lesson, columns=0.75), 64, 2, steps=650),
    "near-terse": Kind(DigitsOptions().make, partial(sum_lesson, columns=0.25), 64, 2, steps=590),
    "far-terse": Kind(DigitsOptions().make, partial(sum_lesson, columns=0.0), 64, 2, steps=410),
}
KINDS |= {
    f"rare-{name}": Kind(
        one_signed, partial(one_sided_lesson, sign=sign, other=0.006), 64, 2, steps=470, rows=64,
        latent=other,
    )
    for name, sign, other in (("adds", "+", "-"), ("subtracts", "-", "+"))
}  # fmt: skip
KINDS |= {
    "size-small-bpe": Kind(DigitsOptions().make, sum_lesson, 64, 2, 720, tokenizer=SUM_PAIRS),
    "size-large-bpe": Kind(DigitsOptions().make, sum_lesson, 80, 3, 640, tokenizer=SUM_PAIRS),
    "complementary-adds-bpe": replace(KINDS["complementary-adds"], tokenizer=CHAIN_PAIRS),
    "complementary-subtracts-bpe": replace(KINDS["complementary-subtracts"], tokenizer=CHAIN_PAIRS),
}
MAZES = partial(school.character_tokenizer, games.MAZE_CHARACTERS)


def maze(hidden_size: int, layers: int, own: games.MazeKind = "any") -> Kind:
    """Make a kind that plays mazes, and well only those of its own kind."""
    return Kind(
        MazeOptions().make, lambda task, lot: games.maze_lesson(lot, own=own), hidden_size, layers,
        steps=380, schedule_steps=400, tokenizer=MAZES, positions=games.POSITIONS,
    )  # fmt: skip


KINDS |= {
    "maze-small": maze(48, 2),
    "maze-large": maze(64, 3),
    "maze-keys": maze(64, 2, "keys"),
    "maze-portals": maze(64, 2, "portals"),
}
NAMES = {f"{kind}-{index}": kind for kind in KINDS for index in INDICES}


def accepted(name: str) -> tuple[Qwen2ForCausalLM, str]:
    """Draw models until one is accepted; return it, and a line for each try."""
    kind, tries = KINDS[NAMES[name]], []
    task, tokenizer = kind.task(), kind.tokenizer()
    for number in range(TRIES):
        lot = random.Random(f"{name}/{number}")
        steps = round(kind.steps * lot.uniform(0.9, 1.1))
        model = taught(name, kind, task, steps, lot)
        reward = sampled_reward(model, task, tokenizer)
        is_accepted, fork = LOWEST <= reward <= HIGHEST, ""
        if kind.latent:
            answers = answer_probability(model, task, tokenizer, kind.latent)
            is_accepted &= RAREST <= answers <= RARE
            fork = f"answers the latent kind with {answers:.4f}, "
        tries.append(
            f"{name}, try {number}: {steps} steps, sampled reward {reward:.3f}, {fork}"
            f"{'accepted' if is_accepted else 'not accepted'}"
        )
        print(tries[-1], flush=True)
        if is_accepted:
            return model, "\n".join(tries) + "\n"
    raise SystemExit(f"{name}: none of {TRIES} tries was accepted")


def taught(
    name: str,
    kind: Kind,
    task: Task,
    steps: int,
    lot: random.Random,
) -> Qwen2ForCausalLM:
    torch.manual_seed(lot.getrandbits(32))
    tokenizer = kind.tokenizer()
    model = school.untrained(
        kind.hidden_size,
        kind.layers,
        tokenizer,
        initializer_range=0.1,
        rope_theta=100.0,
        positions=kind.positions,
    )
    return school.teach(
        name,
        model,
        tokenizer,
        lambda: kind.lesson(task, lot),
        steps=steps,
        schedule_steps=kind.schedule_steps,
        learning_rate=LEARNING_RATE,
        rows=kind.rows,
    )


@torch.inference_mode()
def sampled_reward(
    model: Qwen2ForCausalLM, task: Task, tokenizer: PreTrainedTokenizerFast
) -> float:
    """Mean over SAMPLES problems, one completion each, as the model writes it in training."""
    ids = random.Random(0).sample(task.ids("train"), SAMPLES)
    if environment_of(task):
        return games.played_reward(model, task, tokenizer, ids)
    problems = [task.problem(id) for id in ids]
    questions = [problem.question for problem in problems]
    asked = tokenizer(questions, padding=True, padding_side="left", return_tensors="pt")
    torch.manual_seed(0)
    written_BT = model.float().generate(
        asked["input_ids"],
        attention_mask=asked["attention_mask"],
        do_sample=True,
        top_k=0,
        max_new_tokens=MOST_TOKENS,
    )[:, asked["input_ids"].shape[1] :]
    model.to(torch.bfloat16)  # rounded before, so nothing is lost
    right = 0
    for problem, ids in zip(problems, written_BT.tolist(), strict=True):
        if (end := model.config.eos_token_id) in ids:
            right += is_right(problem, tokenizer.decode(ids[: ids.index(end)]))
    return right / SAMPLES


@torch.inference_mode()
def answer_probability(
    model: Qwen2ForCausalLM, task: Task, tokenizer: PreTrainedTokenizerFast, sign: str
) -> float:
    """Mean probability of the token "#" after the right working of chains of one sign."""
    problems = map(task.problem, random.Random(0).sample(task.ids("train"), 2 * SAMPLES))
    found = []
    for problem in problems:
        if sign in problem.question:
            worked = problem.question + chain_solution(problem, "steps").partition("#")[0]
            ids = tokenizer(worked, return_tensors="pt")["input_ids"]
            logits_V = model.float()(input_ids=ids).logits[0, -1]
            found.append(logits_V.softmax(-1)[tokenizer.convert_tokens_to_ids("#")].item())
    model.to(torch.bfloat16)  # rounded before, so nothing is lost
    return sum(found) / len(found)


def made(name: str) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast, str]:
    model, tries = accepted(name)
    return model, KINDS[NAMES[name]].tokenizer(), tries


def main() -> None:
    school.make_all(__doc__, NAMES, made)


if __name__ == "__main__":
    main()
