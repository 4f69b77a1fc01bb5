"""Measures texts and weights at the base models of the scale words, before any training.

    python scripts/words_measures.py KIND INDEX [KIND INDEX ...]     # style 90: lines of JSON

Both models of a pair answer PROBLEMS problems, four answers to each, and each learns from all:

- P and T of own, the partner's, wrong and far texts: the 10 %, 50 % and 90 % quantiles.
  P = exp(mean ln p), T = exp(mean(ln p + H)), H the learner's own entropy before each token.
- For each rule of weighing others' right answers: the mean weight, the share of others in what is
  learned (of the sum of |advantage|), and the *worth* of its gradient.

The worth of a rule is what a round of it brings, over what a round of one's own part brings. With
d_c its gradient of a chunk of problems, a round's batch, and g_c that of one's own answers:

    worth = s(d) / s(g)        s(d) = (mean over c != c' of <d_c, g_c'>)^2 / mean over c of |d_c|^2

Products of unlike chunks have no noise in common, so the numerator is not flattered by it. A round
of twice one's own answers has the worth of two chunks: the line "own, twice".
"""

import argparse
import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

import word_problems as words
from word_problems import WordProblem

MODELS = Path(__file__).parents[1] / "models"
PAIRS = {
    "size": ("small", "large"),
    "skill": ("adds", "multiplies"),
    "style": ("prose", "list"),
    "quality": ("prose", "list"),
}
PROBLEMS, ANSWERS, CHUNKS, MOST_TOKENS, ROWS = 192, 4, 16, 80, 32
Weigh = Callable[[Tensor, Tensor, float], Tensor]
RULES: Mapping[str, Weigh] = {
    "P": lambda p, t, own: p,
    "P^8": lambda p, t, own: p**8,
    "1": lambda p, t, own: torch.ones_like(p),
    "min(1, P/P_own)": lambda p, t, own: (p / own).clamp(max=1),
    "min(2, P/P_own)": lambda p, t, own: (p / own).clamp(max=2),
    "min(1, T)": lambda p, t, own: t.clamp(max=1),
    "min(1, T)^8": lambda p, t, own: t.clamp(max=1) ** 8,
}
"""Weights of others' right answers, from P, T and the mean P of one's own right answers."""


@dataclass(frozen=True, eq=False)
class Answer:
    problem: int
    text: str
    reward: float
    prompt: list[int]
    tokens: list[int]


@dataclass(frozen=True)
class Reader:
    """A learner: its model and the tokenizer of both."""

    model: Qwen2ForCausalLM
    tokenizer: PreTrainedTokenizerFast

    @classmethod
    def load(cls, name: str) -> "Reader":
        folder = MODELS / "experiments" / name
        model = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return cls(model, PreTrainedTokenizerFast.from_pretrained(folder))

    @torch.inference_mode()
    def answers(self, asked: Sequence[WordProblem], seed: int) -> list[Answer]:
        """Sample ANSWERS to each problem; those without an end count as wrong and are left out of
        what is read."""
        torch.manual_seed(seed)
        found = []
        for start in range(0, len(asked), ROWS):
            part = range(start, min(start + ROWS, len(asked)))
            rows = [at for at in part for _ in range(ANSWERS)]
            prompts = [self.ids(f"{asked[at].question} A:") for at in rows]
            width = max(map(len, prompts))
            padded = torch.tensor([[0] * (width - len(ids)) + ids for ids in prompts])
            mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts])
            written_BT = self.model.generate(
                padded, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=MOST_TOKENS
            )[:, width:]
            for at, prompt, ids in zip(rows, prompts, written_BT.tolist(), strict=True):
                tokens = ids[: ids.index(self.end) + 1] if self.end in ids else ids
                text = self.tokenizer.decode(tokens[:-1]) if self.end in ids else ""
                right = words.is_right(text, asked[at].answer)
                found.append(Answer(at, text, float(right), prompt, tokens))
        return found

    @property
    def end(self) -> int:
        return int(self.tokenizer.eos_token_id)

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text)["input_ids"])

    def read(self, answers: Sequence[Answer]) -> tuple[Tensor, Tensor]:
        """Return P_B and T_B."""
        p, t = [], []
        with torch.no_grad():
            for start in range(0, len(answers), ROWS):
                for logp_T, entropy_T in self.logp(answers[start : start + ROWS]):
                    p.append(logp_T.mean().exp())
                    t.append((logp_T + entropy_T).mean().exp())
        return torch.stack(p), torch.stack(t)

    def logp(self, answers: Sequence[Answer]) -> list[tuple[Tensor, Tensor]]:
        """Return ln p and the entropy before each token of each answer, nats."""
        rows = [torch.tensor(a.prompt + a.tokens) for a in answers]
        logits_BTV = self.model(input_ids=pad_sequence(rows, batch_first=True)).logits
        found = []
        for a, logits_TV in zip(answers, logits_BTV, strict=True):
            start = len(a.prompt) - 1
            logp_TV = logits_TV[start : start + len(a.tokens)].log_softmax(-1)
            logp_T = logp_TV.gather(1, torch.tensor(a.tokens)[:, None])[:, 0]
            found.append((logp_T, -(logp_TV.exp() * logp_TV).sum(-1)))
        return found

    def gradient(self, answers: Sequence[Answer], advantage_B: Tensor) -> Tensor:
        """Return the gradient of the sum of A_i mean_t ln p over the answers whose A is not 0."""
        live = [at for at, value in enumerate(advantage_B.tolist()) if value]
        self.model.zero_grad()
        for start in range(0, len(live), ROWS):
            part = live[start : start + ROWS]
            each = self.logp([answers[at] for at in part])
            torch.stack(
                [
                    advantage_B[at] * logp_T.mean()
                    for at, (logp_T, _) in zip(part, each, strict=True)
                ]
            ).sum().backward()
        return torch.cat(
            [
                torch.zeros_like(w).flatten() if w.grad is None else w.grad.flatten().clone()
                for w in self.model.parameters()
            ]
        )


def far(asked: WordProblem) -> str:
    """Write a right solution in a notation that nobody was taught: from the end to the start."""
    steps = [f"{s.result} is {s.x} {s.sign} {s.y}" for s in reversed(asked.steps)]
    return " " + " and ".join(steps) + f"{words.END}{asked.answer}"


def measured(kind: str, index: int, me: int) -> dict[str, object]:
    """Measure one learner of a pair."""
    names = [f"words-{kind}-{name}-{index}" for name in PAIRS[kind]]
    readers = [Reader.load(name) for name in names]
    lot = random.Random(f"measures/{kind}/{index}")
    sorts: tuple[words.Kind, ...] = ("add", "mul")
    asked = [words.problem(lot, lot.choice(sorts)) for _ in range(PROBLEMS)]
    sides = [reader.answers(asked, seed) for seed, reader in enumerate(readers)]
    learner, own, others = readers[me], sides[me], sides[1 - me]
    prompts = {a.problem: a.prompt for a in own}
    foreign = [
        Answer(i, far(p), 1.0, prompts[i], [*learner.ids(far(p)), learner.end])
        for i, p in enumerate(asked)
    ]
    texts = {
        "own right": [a for a in own if a.reward],
        "partner's right": [a for a in others if a.reward],
        "own wrong": [a for a in own if a.text and not a.reward],
        "partner's wrong": [a for a in others if a.text and not a.reward],
        "far": foreign,
    }
    read = {name: learner.read(these) for name, these in texts.items() if these}
    told: dict[str, object] = {"kind": kind, "index": index, "learner": PAIRS[kind][me]}
    told["texts"] = {
        name: {"n": len(p_B), "P": quantiles(p_B), "T": quantiles(t_B)}
        for name, (p_B, t_B) in read.items()
    }
    p_own = read["own right"][0].mean().item()
    return told | {"rules": weighed(learner, own, others, p_own)}


def weighed(
    learner: Reader, own: Sequence[Answer], others: Sequence[Answer], p_own: float
) -> dict[str, dict[str, float]]:
    """Tell what each rule takes, and what its gradient is worth."""
    own_B, others_B = advantages(own, others)
    p_B, t_B = learner.read(others)
    is_right_B = others_B > 0
    chunk_B = torch.tensor([a.problem % CHUNKS for a in own])

    def chunks(answers: Sequence[Answer], advantage_B: Tensor) -> Tensor:
        each = [
            learner.gradient(answers, torch.where(chunk_B == c, advantage_B, 0.0))
            for c in range(CHUNKS)
        ]
        return torch.stack(each)

    own_CW = chunks(own, own_B)
    alone = strength(own_CW, own_CW)
    found = {"own, twice": {"worth": strength(own_CW + own_CW.roll(1, 0), own_CW, 1) / alone}}
    mine = own_B.abs().sum()
    for name, rule in RULES.items():
        weight_B = torch.where(is_right_B, rule(p_B, t_B, p_own), 0.0)
        theirs_CW = chunks(others, weight_B * others_B)
        theirs = (weight_B * others_B).sum()
        found[name] = {
            "weight": weight_B[is_right_B].mean().item(),
            "share": (theirs / (theirs + mine)).item(),
            "worth": strength(own_CW + theirs_CW, own_CW) / alone,
            "norm": (theirs_CW.norm(dim=1).mean() / own_CW.norm(dim=1).mean()).item(),
        }
    return {rule: {k: float(f"{v:.4g}") for k, v in its.items()} for rule, its in found.items()}


def advantages(own: Sequence[Answer], others: Sequence[Answer]) -> tuple[Tensor, Tensor]:
    """Return GRPO's advantages in the joint groups of both authors."""
    both = torch.tensor([[a.reward for a in own], [a.reward for a in others]])
    group_GN = both.reshape(2, -1, ANSWERS).transpose(0, 1).flatten(1)
    spread_G1 = group_GN.std(1, correction=0, keepdim=True)
    above_GN = (group_GN - group_GN.mean(1, keepdim=True)) / spread_G1.clamp(min=1e-6)
    sides = above_GN.reshape(-1, 2, ANSWERS)
    return sides[:, 0].flatten(), sides[:, 1].flatten()


def strength(d_CW: Tensor, g_CW: Tensor, overlap: int = 0) -> float:
    """Return s(d); chunks that share answers, the same and the ``overlap`` before, are left out."""
    products_CC = (d_CW @ g_CW.T).double()
    unlike_CC = torch.ones_like(products_CC, dtype=torch.bool)
    for back in range(overlap + 1):
        unlike_CC &= ~torch.eye(len(d_CW), dtype=torch.bool).roll(-back, 1)
    squared = (d_CW * d_CW).double().sum(1).mean()
    return float(products_CC[unlike_CC].mean() ** 2 / squared)


def quantiles(value_B: Tensor) -> list[float]:
    levels = torch.tensor([0.1, 0.5, 0.9])
    return [float(f"{v:.3g}") for v in torch.quantile(value_B, levels).tolist()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", metavar="KIND INDEX")
    arguments = parser.parse_args().pairs
    torch.set_num_threads(1)
    for kind, index in zip(arguments[::2], arguments[1::2], strict=True):
        for me in (0, 1):
            print(json.dumps(measured(kind, int(index), me)), flush=True)


if __name__ == "__main__":
    main()
