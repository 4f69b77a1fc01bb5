"""Two unlike language models learn from each other's completions, in one file to copy.

    python examples/two_models.py                 # together: less than a minute of one CPU core
    python examples/two_models.py --alone         # control: nothing from the partner
    python examples/two_models.py --alone 8       # control: also twice as many of its own

It needs torch and transformers, no GPU, no network, and nothing of Potluck. The task is small sums
and differences; a token is a character. The adder, a tiny Qwen2, and the subtracter, a tiny Llama,
begin as random weights, so a short supervised phase first brings each up, mostly on its own kind of
problem, until it solves half of that kind. Then they train by GRPO, both on both kinds. The method
is LWS, likelihood-weighted successes. In each round:

1.  Each model writes 4 completions of each problem, and the models exchange the texts. All 8 of a
    problem are its group. Each model grades all of them itself.
2.  The advantage of a completion a_i is how far its reward lies above the mean of its whole group:

        A_i = (r_i - mean r) / std r             0 where all rewards of the group are equal

3.  A model learns from its own completions as in GRPO, and from the partner's successes by how
    likely it finds them itself. The partner's failures count in the mean, in the std and in B, and
    are not learned from: a failure that is pushed down takes along what was right in it.

        P_i  = exp( 1/|a_i| sum_t ln pi_start(a_it) )       likelihood per token, 0..1, a constant
        A_i <- P_i^c A_i   if a_i is the partner's and A_i > 0
        A_i <- 0           if a_i is the partner's and A_i <= 0

4.  One step of the optimiser on all B completions of the round; |a_i| counts the stop token.

        L = - 1/B sum_i 1/|a_i| sum_t  min(R_it A_i, clip(R_it, 1-e, 1+e) A_i)
        R_it = pi_theta / pi_start          no weight between the models: pi_gen is never sent

What is printed is the mean reward of what each model itself sampled, on problems drawn anew in each
round. Seeds 0 to 3: .37 and .37 (adder, subtracter) in rounds 1 to 5; in rounds 76 to 80 .70 and
.81, --alone .56 and .58, --alone 8 .66 and .73. That is one task with four seeds, and the settings
were chosen on the first of them: a picture of the method, not evidence.

Left out, and in Potluck: models with unlike tokenizers, more than two, on a machine each; partners
that are late, lost or not trusted; several steps a round (here R is 1, and the clip idle), a KL,
micro-batches, guards against numbers that are not finite; problems held back to measure on; and two
defaults, typicality in place of P and the test of others' habits. docs/method.md has the reasons.
"""

import argparse
import random
import time
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

PROBLEMS = 64  # of a round
COMPLETIONS = 4  # of each problem, by each model
LONGEST = 5  # tokens of a completion, the stop token among them
EXPONENT, CLIP, LEARNING_RATE = 1.0, 0.2, 2e-3  # c, e, AdamW's

# The supervised phase: problems in a step, share of the model's own kind, reward on it at the end.
LESSONS, OWN_SHARE, ENOUGH, SCHOOL_RATE = 128, 0.8, 0.5, 3e-3

STOP = "\n"
ALPHABET = STOP + "0123456789+-="  # the id of a token is its place here


class Completion(NamedTuple):
    """What travels: no rewards, no log-probabilities, no weights."""

    author: str
    question: str
    text: str  # ends with STOP, unless it was cut off


def draw(signs: str) -> str:
    """Draw a question, such as "47+8="."""
    return f"{random.randint(10, 99)}{random.choice(signs)}{random.randint(1, 9)}="


def solution(question: str) -> str:
    """Write the result from its last digit on, as one adds on paper: "55", "201" for 102."""
    a, sign, b = int(question[:2]), question[2], int(question[3])
    return str(a + b if sign == "+" else a - b)[::-1] + STOP


def reward(completion: Completion) -> float:
    return float(completion.text == solution(completion.question))


def ids(text: str) -> list[int]:
    return [ALPHABET.index(character) for character in text]


def make_models() -> dict[str, Module]:
    """Make two models of random weights. Neither has dropout, so train() and eval() are alike."""
    common = {
        "vocab_size": len(ALPHABET),
        "num_attention_heads": 4,
        "max_position_embeddings": 16,
        "initializer_range": 0.1,
        "eos_token_id": ALPHABET.index(STOP),
        "pad_token_id": ALPHABET.index(STOP),  # masks are made from lengths, so they may be one
    }
    deep = {"hidden_size": 48, "intermediate_size": 192, "num_hidden_layers": 3}
    wide = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2}
    return {
        "adder": Qwen2ForCausalLM(Qwen2Config(**common, **deep, num_key_value_heads=2)),
        "subtracter": LlamaForCausalLM(LlamaConfig(**common, **wide)),
    }


def read(model: Module, questions: list[str], texts: list[str]) -> tuple[Tensor, Tensor]:
    """Return logp_BT, ln pi of each token of each text behind its question, and mask_BT.

    Rows are padded at their end, which causal attention never sees. The mask is True where a text
    has a token. It comes from the lengths: a comparison with the pad id would lose the stop token.
    """
    pairs = list(zip(questions, texts, strict=True))
    token_BS = pad_sequence([torch.tensor(ids(q + t)) for q, t in pairs], batch_first=True)
    logits_BSV = model(input_ids=token_BS[:, :-1], use_cache=False).logits
    logp_BS = -cross_entropy(logits_BSV.transpose(1, 2), token_BS[:, 1:], reduction="none")
    first_B1 = torch.tensor([[len(question) - 1] for question in questions])
    length_B1 = torch.tensor([[len(text)] for text in texts])
    place_T = torch.arange(int(length_B1.max()))
    mask_BT = place_T < length_B1
    logp_BT = logp_BS.gather(1, (first_B1 + place_T).clamp(max=logp_BS.shape[1] - 1))
    return logp_BT.where(mask_BT, 0.0), mask_BT


@torch.no_grad()
def sample(model: Module, me: str, questions: list[str], count: int) -> list[list[Completion]]:
    """Sample ``count`` completions of each question, at temperature 1."""
    question_BP = torch.tensor([ids(q) for q in questions for _ in range(count)])
    mask_BP = torch.ones_like(question_BP)  # all questions have one length
    token_BS = model.generate(
        question_BP, attention_mask=mask_BP, do_sample=True, top_k=0, max_new_tokens=LONGEST
    )
    rows = token_BS[:, question_BP.shape[1] :].tolist()
    texts = ("".join(ALPHABET[id] for id in row).partition(STOP)[:2] for row in rows)
    return [[Completion(me, q, "".join(next(texts))) for _ in range(count)] for q in questions]


def step(model: Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def bring_up(model: Module, own: str, other: str) -> torch.optim.Optimizer:
    """Teach a model by solutions until it solves half of its own kind.

    Return its optimiser, which goes on with its moments: a new one would begin with leaps.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=SCHOOL_RATE)
    for lesson in range(1, 1001):
        optimizer.param_groups[0]["lr"] = SCHOOL_RATE * min(1, lesson / 30)
        questions = [draw(own if random.random() < OWN_SHARE else other) for _ in range(LESSONS)]
        logp_BT, mask_BT = read(model, questions, [solution(q) for q in questions])
        step(model, optimizer, -logp_BT.sum() / mask_BT.sum())
        if lesson % 10 == 0:
            test = sample(model, "", [draw(own) for _ in range(100)], 1)
            if sum(reward(c) for (c,) in test) >= ENOUGH * len(test):
                break
    optimizer.param_groups[0]["lr"] = LEARNING_RATE
    return optimizer


def advantages(reward_G: Tensor) -> Tensor:
    """Return A of the completions of one problem, relative to all of them."""
    if reward_G.max() == reward_G.min():
        return torch.zeros_like(reward_G)
    return (reward_G - reward_G.mean()) / reward_G.std(correction=0)


def weights(start_BT: Tensor, mask_BT: Tensor, own_B: Tensor) -> Tensor:
    """Return the factors on the advantages: 1 for own completions, P^c for the partner's."""
    likelihood_B = (start_BT.sum(dim=1) / mask_BT.sum(dim=1)).exp()
    return torch.where(own_B, 1.0, likelihood_B**EXPONENT)


def losses(logp_BT: Tensor, start_BT: Tensor, advantage_B: Tensor, mask_BT: Tensor) -> Tensor:
    """Return L_i = - 1/|a_i| sum_t min(R_it A_i, clip(R_it, 1-e, 1+e) A_i)."""
    ratio_BT, advantage_B1 = (logp_BT - start_BT).exp(), advantage_B.unsqueeze(1)
    clipped_BT = ratio_BT.clamp(1 - CLIP, 1 + CLIP)
    surrogate_BT = torch.minimum(ratio_BT * advantage_B1, clipped_BT * advantage_B1)
    return -(surrogate_BT * mask_BT).sum(dim=1) / mask_BT.sum(dim=1)


def lws_loss(model: Module, me: str, groups: list[list[Completion]]) -> Tensor | None:
    """Return L over all completions of the groups; None where there is nothing to learn."""
    advantage_B = torch.cat([advantages(torch.tensor([reward(c) for c in g])) for g in groups])
    completions = [completion for group in groups for completion in group]
    own_B = torch.tensor([completion.author == me for completion in completions])
    taught_B = (advantage_B > 0) | (own_B & (advantage_B < 0))
    chosen = [c for c, taught in zip(completions, taught_B.tolist(), strict=True) if taught]
    if not chosen:
        return None
    logp_BT, mask_BT = read(model, [c.question for c in chosen], [c.text for c in chosen])
    start_BT = logp_BT.detach()  # the step to come is the round's first: pi_theta is pi_start
    weighed_B = advantage_B[taught_B] * weights(start_BT, mask_BT, own_B[taught_B])
    return losses(logp_BT, start_BT, weighed_B, mask_BT).sum() / len(completions)


def line(rewards: dict[str, list[tuple[str, float]]]) -> str:
    """Format each model's mean reward, as a number, as a bar, of sums and of differences."""
    text = ""
    for graded in rewards.values():
        kinds = [[value for question, value in graded if sign in question] for sign in "=+-"]
        both, sums, differences = (sum(values) / max(1, len(values)) for values in kinds)
        text += f"   {both:.2f} {'#' * round(20 * both):20}  {sums:.2f}  {differences:.2f}"
    return text


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--alone", type=int, nargs="?", const=COMPLETIONS, metavar="COMPLETIONS")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the tensors are so small that a second thread would only wait
    torch.manual_seed(options.seed)
    random.seed(options.seed)

    began, models = time.monotonic(), make_models()
    kinds = {"adder": "+-", "subtracter": "-+"}
    optimizers = {name: bring_up(models[name], *kinds[name]) for name in models}
    print(f"Brought up in {time.monotonic() - began:.0f} s. Mean reward from here on:\n")
    print(" " * 9 + "".join(f"   {name:25}  sums  diff." for name in models))

    count, shown = options.alone or COMPLETIONS, max(1, options.rounds // 16)
    rewards = {name: [] for name in models}  # (question, reward), since the last line
    for number in range(1, options.rounds + 1):
        questions = [draw("+-") for _ in range(PROBLEMS)]
        written = {me: sample(model, me, questions, count) for me, model in models.items()}
        # The exchange: here it is a list of both, elsewhere a network is between them.
        joint = [a + b for a, b in zip(*written.values(), strict=True)]
        for me, model in models.items():
            loss = lws_loss(model, me, written[me] if options.alone else joint)
            if loss is not None:
                step(model, optimizers[me], loss)
            rewards[me] += [(c.question, reward(c)) for group in written[me] for c in group]
        if number % shown == 0:
            print(f"round {number:3}{line(rewards)}", flush=True)
            rewards = {name: [] for name in models}
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
