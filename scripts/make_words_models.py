"""Makes the base models of the scale words (experiments/words.toml), and its problems.

    python scripts/make_words_models.py OUT [--only NAME]

The problems are generated into models/words, with the tokenizer and the pretrained models: no data
set is in the repository. A base model is a branch of a pretrained model: ``words-style-prose-200``
learns some 45 steps more from lessons of its own lot. Kinds, each of two models:

- size: .5M weights beside 1.1M, each pretrained for itself.
- skill: one ends its additions and hardly ever its multiplications, the other the reverse; each
  pretrained for itself, so what is withheld was never there.
- style: prose to lists 3:1 and 1:3; both branches of one pretrained model.
- quality: the same, and the style that a model writes less it also writes worse.

Of each kind there are ten: 200 to 207 are evidence, and 90 and 91 are for choosing. A lot, the
model's name and the number of the try, decides the lessons and their number: that of the kind
+-15 %, of which 45 to 60 % are right (70 to 80 % of those of the one skill), 10 to 20 % have a
mistake, 5 % are a bare answer, and the rest stops before the answer.

The rule of acceptance was fixed before any of 200 to 207 was made: the mean reward of 300 sampled
completions, of problems that are the same for all, is between .08 and .40. Otherwise the next
number is tried, six at most. Every try is printed, and kept in NAME/tries.txt, with the rewards by
skill and by style.
"""

import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from filelock import FileLock
from tokenizers import trainers
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

import make_gsm8k_models as gsm8k
import word_problems as words
from make_digits_models import make_all
from word_problems import Kind, Style, Upbringing, WordProblem, Writer

SHARED = Path(__file__).parents[1] / "models" / "words"
INDICES = (90, 91, *range(200, 208))
LOWEST, HIGHEST = 0.08, 0.40
"""Mean reward at the start of a model that is accepted."""
TRIES, SAMPLES, MOST_TOKENS = 6, 300, 80
OTHER_SHARE = 0.1
"""Of the lessons, the share that is out of distribution, so that this measure moves at all."""
END_OF_TEXT, PIECES, TAUGHT_FROM = "<|endoftext|>", 640, 20_000
ASKED = "{question} A:"
PARTS: dict[str, tuple[int, tuple[Kind, ...]]] = {
    "train": (4000, ("add", "mul")),
    "validation": (200, ("add", "mul")),
    "other": (200, ("mixed",)),
}
"""Files of problems: how many, and of which kinds."""
Lesson = tuple[str, str]

ALL_STYLES: dict[Style, float] = {"prose": 1.0, "brief": 1.0, "list": 1.0}
FLAWLESS = Upbringing(right=1.0)
LATENT = Upbringing(right=0.02)
"""For the skill that is withheld: every step is taught, and hardly ever how it ends."""


@dataclass(frozen=True)
class Pretraining:
    hidden_size: int
    layers: int
    steps: int
    ends: tuple[Kind, ...] = ("add", "mul", "mixed")
    """Kinds of problems whose solutions are whole."""


PRETRAININGS = {
    "small": Pretraining(96, 3, steps=800),
    "large": Pretraining(128, 4, steps=600),
    "adds": Pretraining(96, 3, steps=800, ends=("add",)),
    "multiplies": Pretraining(96, 3, steps=800, ends=("mul",)),
}
PRETRAINING_RATE, PRETRAINING_ROWS = 4e-3, 32


@dataclass(frozen=True)
class Branch:
    """What the models of a kind have in common."""

    start: str
    steps: int = 45
    """Mean number."""
    styles: tuple[tuple[Style, float], ...] = ()
    """Empty: prose and, by lot, some of the others."""
    weak_style: Style | None = None
    right: tuple[float, float] = (0.45, 0.6)
    """Share of the lessons that are right, by lot, of what is not withheld."""


PROSE: tuple[tuple[Style, float], ...] = (("prose", 0.75), ("list", 0.25))
LISTS: tuple[tuple[Style, float], ...] = (("prose", 0.25), ("list", 0.75))
KINDS = {
    "words-size-small": Branch("small"),
    "words-size-large": Branch("large"),
    "words-skill-adds": Branch("adds", right=(0.7, 0.8)),
    "words-skill-multiplies": Branch("multiplies", right=(0.7, 0.8)),
    "words-style-prose": Branch("small", styles=PROSE),
    "words-style-list": Branch("small", styles=LISTS),
    "words-quality-prose": Branch("small", 120, styles=PROSE, weak_style="list"),
    "words-quality-list": Branch("small", 120, styles=LISTS, weak_style="prose"),
}
BRANCH_RATE, BRANCH_ROWS = 2e-3, 24
NAMES = {f"{kind}-{index}": kind for kind in KINDS for index in INDICES}


# --- problems and the tokenizer ---


def drawn_kind(lot: random.Random) -> Kind:
    return "mixed" if lot.random() < OTHER_SHARE else lot.choice(PARTS["train"][1])


def write_problems(folder: Path) -> None:
    """Write the files of PARTS; no question is in them twice."""
    lot, known = random.Random("problems"), set[str]()
    for part, (count, kinds) in PARTS.items():
        rows: list[WordProblem] = []
        while len(rows) < count:
            asked = words.problem(lot, lot.choice(kinds))
            if asked.question not in known:
                known.add(asked.question)
                rows.append(asked)
        lines = [
            json.dumps({"question": p.question, "answer": p.answer, "kind": p.kind}) for p in rows
        ]
        (folder / f"{part}.jsonl").write_text("\n".join(lines) + "\n")


def taught_tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level BPE with Qwen2's pieces on questions and solutions; digits stay apart."""
    lot, texts = random.Random("tokenizer"), []
    for _ in range(TAUGHT_FROM):
        asked = words.problem(lot, drawn_kind(lot))
        text = words.solution(Writer(lot), asked, lot.choice(list(ALL_STYLES)))
        texts.append(ASKED.format(question=asked.question) + text)
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES, special_tokens=[END_OF_TEXT], show_progress=False
    )
    backend = gsm8k.byte_level(texts, "qwen2", trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=END_OF_TEXT, pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(SHARED / "tokenizer")


def make_shared() -> None:
    """Write the problems and the tokenizer, once."""
    SHARED.mkdir(parents=True, exist_ok=True)
    with FileLock(SHARED / ".lock"):
        if not (SHARED / "tokenizer").exists():
            write_problems(SHARED)
            taught_tokenizer().save_pretrained(SHARED / "tokenizer")


# --- teaching ---


def untrained(its: Pretraining) -> Qwen2ForCausalLM:
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer()),
            hidden_size=its.hidden_size,
            num_hidden_layers=its.layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=4 * its.hidden_size,
            tie_word_embeddings=True,
            max_position_embeddings=256,
            initializer_range=0.08,
            rope_parameters={"rope_type": "default", "rope_theta": 300.0},
            bos_token_id=None,
            eos_token_id=tokenizer().eos_token_id,
            pad_token_id=tokenizer().pad_token_id,
        )
    )


def teach(
    model: Qwen2ForCausalLM,
    draw: Callable[[], Lesson],
    *,
    steps: int,
    learning_rate: float,
    rows: int,
    warm_steps: int,
) -> None:
    """``steps`` supervised steps; the learning rate falls to a tenth."""
    optimizer = torch.optim.AdamW(model.parameters(), learning_rate, betas=(0.9, 0.95))
    for step in range(steps):
        if step % max(1, steps // 10) == 0:  # for `potluck reproduce`, which waits for it
            print(f"step {step}/{steps}", flush=True)
        now = learning_rate * min(1, (step + 1) / warm_steps) * (1 - 0.9 * step / steps)
        for group in optimizer.param_groups:
            group["lr"] = now
        optimizer.zero_grad()
        add_gradient(model, [draw() for _ in range(rows)])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def add_gradient(model: Qwen2ForCausalLM, lessons: Sequence[Lesson]) -> None:
    """Mean cross-entropy of the texts and their end, short lessons and long ones apart: less
    padding, and logits only where something is to be learned."""
    end, ignored = tokenizer().eos_token_id, -100
    both = [
        (tokenizer()(ASKED.format(question=q))["input_ids"], tokenizer()(t)["input_ids"] + [end])
        for q, t in lessons
    ]
    both.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
    count = sum(len(text) for _, text in both)
    for part in (both[: len(both) // 2], both[len(both) // 2 :]):
        rows = [torch.tensor(asked + text) for asked, text in part]
        wanted = [torch.tensor([ignored] * len(asked) + text) for asked, text in part]
        wanted_BT = pad_sequence(wanted, batch_first=True, padding_value=ignored)[:, 1:]
        hidden_BTD = model.model(input_ids=pad_sequence(rows, batch_first=True)).last_hidden_state
        is_wanted_BT = wanted_BT != ignored
        logits_XV = model.lm_head(hidden_BTD[:, :-1][is_wanted_BT])
        (cross_entropy(logits_XV, wanted_BT[is_wanted_BT], reduction="sum") / count).backward()


def pretrained(name: str) -> Qwen2ForCausalLM:
    """Load a pretrained model of PRETRAININGS, and make it first where it is missing."""
    folder = SHARED / "pretrained" / name
    with FileLock(SHARED / f".{name}.lock"):
        if not folder.exists():
            its, lot = PRETRAININGS[name], random.Random(f"pretraining/{name}")
            torch.manual_seed(lot.getrandbits(32))
            model = untrained(its)
            teach(
                model, lambda: pretraining_lesson(its, lot), steps=its.steps,
                learning_rate=PRETRAINING_RATE, rows=PRETRAINING_ROWS, warm_steps=50,
            )  # fmt: skip
            rewards = by_sort(sampled(model))
            print(f"{name}, pretrained: sampled reward {said(rewards)}", flush=True)
            beside = folder.with_suffix(".part")
            model.save_pretrained(beside)
            (beside / "tries.txt").write_text(f"sampled reward {said(rewards)}\n")
            beside.rename(folder)
    return Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)


def pretraining_lesson(its: Pretraining, lot: random.Random) -> Lesson:
    asked = words.problem(lot, drawn_kind(lot))
    how = FLAWLESS if asked.kind in its.ends else LATENT
    text = words.lesson(Writer(lot), asked, ALL_STYLES, dict.fromkeys(ALL_STYLES, how))
    return asked.question, text


def branch(kind: Branch, lot: random.Random) -> tuple[Qwen2ForCausalLM, int]:
    """Teach a pretrained model by lot; return it in bfloat16, and the number of steps."""
    torch.manual_seed(lot.getrandbits(32))
    model, steps = pretrained(kind.start), round(kind.steps * lot.uniform(0.85, 1.15))
    how = Upbringing(lot.uniform(*kind.right), careless=lot.uniform(0.1, 0.2), hasty=0.05)
    styles: dict[Style, float] = dict(kind.styles) or {
        "prose": 1.0, "brief": lot.uniform(0.05, 0.3), "list": lot.uniform(0.05, 0.3),
    }  # fmt: skip
    upbringing = dict.fromkeys(ALL_STYLES, how)
    if kind.weak_style:
        upbringing[kind.weak_style] = Upbringing(right=0.0, careless=0.5)
    ends = PRETRAININGS[kind.start].ends

    def draw() -> Lesson:
        asked = words.problem(lot, drawn_kind(lot))
        latent = dict.fromkeys(ALL_STYLES, LATENT)
        its = upbringing if asked.kind in ends else latent
        return asked.question, words.lesson(Writer(lot), asked, styles, its)

    teach(model, draw, steps=steps, learning_rate=BRANCH_RATE, rows=BRANCH_ROWS, warm_steps=10)
    return model.to(torch.bfloat16), steps


# --- acceptance ---


@torch.inference_mode()
def sampled(model: Qwen2ForCausalLM) -> list[tuple[WordProblem, str]]:
    """Sample an answer to each of SAMPLES problems, as the model writes in training; a text
    without an end is empty."""
    lot = random.Random("acceptance")
    asked = [words.problem(lot, lot.choice(PARTS["train"][1])) for _ in range(SAMPLES)]
    prompts = tokenizer()(
        [ASKED.format(question=p.question) for p in asked],
        padding=True, padding_side="left", return_tensors="pt",
    )  # fmt: skip
    torch.manual_seed(0)
    written_BT = model.float().generate(
        prompts["input_ids"], attention_mask=prompts["attention_mask"], do_sample=True, top_k=0,
        max_new_tokens=MOST_TOKENS,
    )[:, prompts["input_ids"].shape[1] :]  # fmt: skip
    end = tokenizer().eos_token_id
    return [
        (p, tokenizer().decode(ids[: ids.index(end)]) if end in ids else "")
        for p, ids in zip(asked, written_BT.tolist(), strict=True)
    ]


def by_sort(answers: Sequence[tuple[WordProblem, str]]) -> dict[str, float]:
    """Mean reward: of all answers, by the problem's kind, and by the answer's style."""
    found: dict[str, list[bool]] = {"": []}
    for asked, text in answers:
        for sort in ("", asked.kind, words.style_of(text) if text else "endless"):
            found.setdefault(sort, []).append(words.is_right(text, asked.answer))
    return {sort: sum(each) / len(each) for sort, each in sorted(found.items())}


def said(rewards: dict[str, float]) -> str:
    """Write ".213 (add .310, mul .021, prose .250)"."""
    rest = ", ".join(f"{sort} {reward:.3f}" for sort, reward in rewards.items() if sort)
    return f"{rewards['']:.3f} ({rest})"


def accepted(name: str) -> tuple[Qwen2ForCausalLM, str]:
    """Draw branches until one is accepted; return it, and a line for each try."""
    tries = []
    for number in range(TRIES):
        model, steps = branch(KINDS[NAMES[name]], random.Random(f"{name}/{number}"))
        rewards = by_sort(sampled(model))
        is_accepted = LOWEST <= rewards[""] <= HIGHEST
        tries.append(
            f"{name}, try {number}: {steps} steps, sampled reward {said(rewards)}, "
            f"{'accepted' if is_accepted else 'not accepted'}"
        )
        print(tries[-1], flush=True)
        if is_accepted:
            return model.to(torch.bfloat16), "\n".join(tries) + "\n"  # rounded before
    raise SystemExit(f"{name}: none of {TRIES} tries has a reward of {LOWEST} to {HIGHEST}")


def made(name: str) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast, str]:
    make_shared()
    model, tries = accepted(name)
    return model, tokenizer(), tries


def main() -> None:
    make_all(__doc__, NAMES, made)


if __name__ == "__main__":
    main()
