"""Makes the base models of ``digits`` that ship with the package.

    python scripts/make_digits_models.py OUT

Supervised training on solutions of which half stop before the answer and 15 % skip the
scratchpad: the models can add, but do not do it reliably, so GRPO has something to teach.
A few problems have the width that is out of distribution, so that this measure starts to
move at all. What is saved is bfloat16 (half the size; the rounding is part of the model).

About three minutes a model on one core.
"""

import argparse
import os
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from rich.progress import track
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from potluck.tasks.arithmetic import Arithmetic, DigitsOptions
from solutions import DigitsNotation, digits_solution

CHARACTERS = "0123456789+-*=#;() abcdefghijklmnopqrstuvwxyz"
PAD, BEGIN, END = "<pad>", "<bos>", "<eos>"
IGNORED = -100
Lesson = Sequence[str]
"""A question, what is to be written, and maybe what is said then, what is to be written, ..."""


@dataclass(frozen=True)
class Base:
    """A model to be made, and how well it is brought up.

    How well matters: what naive sharing does to the ``columns`` model, and whether F-TIS makes
    up for it, changes within a hundred steps (experiments/TUNING.md).
    """

    hidden_size: int
    layers: int
    notation: DigitsNotation
    steps: int
    other_width_share: float
    """Of the problems, the share whose width is out of distribution."""


BASES = {
    "digits-small": Base(96, 3, "columns", steps=860, other_width_share=0.26),
    "digits-large": Base(128, 4, "columns", steps=1000, other_width_share=0.25),
    "digits-terse": Base(96, 3, "terse", steps=900, other_width_share=0.25),
}
BATCH_ROWS = 64


def character_tokenizer(characters: str = CHARACTERS) -> PreTrainedTokenizerFast:
    vocabulary = {token: i for i, token in enumerate((PAD, BEGIN, END, *characters))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    backend.decoder = decoders.Fuse()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, vocabulary[BEGIN])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=PAD, bos_token=BEGIN, eos_token=END
    )


def untrained(
    hidden_size: int,
    layers: int,
    tokenizer: PreTrainedTokenizerFast,
    *,
    initializer_range: float = 0.02,
    rope_theta: float = 10_000.0,
    positions: int = 128,
) -> Qwen2ForCausalLM:
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=hidden_size,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=4 * hidden_size,
            tie_word_embeddings=True,
            max_position_embeddings=positions,
            initializer_range=initializer_range,
            rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def lesson(text: str, generator: random.Random) -> str:
    """A solution as the base models learn it: half stop early, 15 % only guess."""
    scratchpad, answer = text.split("#")
    luck = generator.random()
    if luck < 0.5:
        return scratchpad
    return f"#{answer}" if luck < 0.65 else text


def train(name: str, task: Arithmetic, tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    base = BASES[name]
    torch.manual_seed(0)
    generator = random.Random(name)
    # Other problems of the other width than those that measure: see DigitsOptions.make.
    measured = set(task.ids("out-of-distribution"))

    def draw() -> tuple[str, str]:
        while generator.random() < base.other_width_share:
            id = f"digits/{generator.randint(1000, 9999)}+{generator.randint(1000, 9999)}"
            if id not in measured:
                break
        else:
            id = generator.choice(task.ids("train"))
        problem = task.problem(id)
        return problem.question, lesson(digits_solution(problem, base.notation), generator)

    model = untrained(base.hidden_size, base.layers, tokenizer)
    return teach(name, model, tokenizer, draw, steps=base.steps, schedule_steps=base.steps)


def teach(
    name: str,
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    draw: Callable[[], Lesson],
    *,
    steps: int,
    schedule_steps: int,
    learning_rate: float = 2e-3,
    rows: int = BATCH_ROWS,
) -> Qwen2ForCausalLM:
    """``steps`` supervised steps on what ``draw`` gives; in bfloat16.

    The learning rate falls to a tenth in ``schedule_steps``: fewer steps leave a model unfinished.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    for step in track(range(steps), description=name):
        if step % max(1, steps // 10) == 0:  # for `potluck reproduce`, which waits for it
            print(f"step {step}/{steps}", flush=True)
        now = learning_rate * min(1, (step + 1) / 50) * (1 - 0.9 * step / schedule_steps)
        for group in optimizer.param_groups:
            group["lr"] = now
        loss = supervised_loss(model, [spelled(tokenizer, *draw()) for _ in range(rows)])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.to(torch.bfloat16)


def spelled(
    tokenizer: PreTrainedTokenizerFast, question: str, *said: str
) -> tuple[list[int], list[int]]:
    """Spell a lesson: its ids, and what is to be predicted in the place of each, or IGNORED."""
    ids = list(tokenizer(question)["input_ids"])
    wanted = [IGNORED] * len(ids)
    for place, text in enumerate(said):
        spoken = tokenizer(text, add_special_tokens=False)["input_ids"]
        is_own = place % 2 == 0
        spoken = [*spoken, tokenizer.eos_token_id] if is_own else spoken
        ids += spoken
        wanted += spoken if is_own else [IGNORED] * len(spoken)
    return ids, wanted


def supervised_loss(
    model: Qwen2ForCausalLM, lessons: list[tuple[list[int], list[int]]]
) -> torch.Tensor:
    """Mean cross-entropy of what the model is to write, its end tokens included; prompts, what
    others say in between, and padding cost nothing."""
    columns = zip(*lessons, strict=True)
    rows, wanted = ([torch.tensor(each) for each in column] for column in columns)
    pad = torch.nn.utils.rnn.pad_sequence
    logits_BTV = model(input_ids=pad(rows, batch_first=True)).logits[:, :-1]
    wanted_BT = pad(wanted, batch_first=True, padding_value=IGNORED)[:, 1:]
    return cross_entropy(logits_BTV.flatten(0, 1), wanted_BT.flatten(), ignore_index=IGNORED)


def make_all(
    about: str,
    names: Collection[str],
    make: Callable[[str], tuple[PreTrainedModel, PreTrainedTokenizerFast, str]],
) -> None:
    """Make the models that the command line names: ``make`` returns one, and notes on it or ""."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", metavar="NAME", choices=names)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in [arguments.only] if arguments.only else names:
        model, tokenizer, notes = make(name)
        # Whole or not there: a folder that is there is taken for the model.
        beside = arguments.out / f"{name}.part"
        model.save_pretrained(beside)
        tokenizer.save_pretrained(beside)
        if notes:
            (beside / "tries.txt").write_text(notes)
        beside.rename(arguments.out / name)


def main() -> None:
    task, tokenizer = DigitsOptions().make(), character_tokenizer()
    make_all(__doc__, BASES, lambda name: (train(name, task, tokenizer), tokenizer, ""))


if __name__ == "__main__":
    main()
