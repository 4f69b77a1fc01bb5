"""What a batch costs on the line: bytes a token, and how fast it is written and read.

Everything counts: header, frames, and the 68 bytes of the seal. Megabytes are of logical data, 8
bytes a token. Reading is with every check; "sealed" is with the signature made or looked at; "ids
alone" is the batch without log-probabilities.

Batches that models wrote: one node's share of a round of the starting recipe (24 problems, 12
completions each) by models that come with Potluck, with two nodes or four, whole groups
("vertical") or a part of each ("horizontal").

Synthetic ones: 144 completions of 300 tokens, vocabulary 151,936.

    ids        Zipf: id i with probability in proportion to 1 / (i + 1), as in a tokenizer whose
               first ids are its frequent ones; "shuffled": the same with the ids' numbers in a
               random order; "uniform": all ids alike
    log-probs  ln sigmoid(x) as float32 arithmetic gives it (the logarithm of a sum of two
               exponentials), x normal of mean 8 and deviation 5: 41 % are likelier than .9999,
               4 % exactly 0, the mean is -.15 nats; "wide": mean 4, deviation 3, where few are
               near 0 and all bits of all numbers are random

With texts (version 3): 144 pieces of 1,000 characters of this repository's pages, in the ids of a
byte-level BPE of 8,192 tokens that was trained on them; log-probabilities as above.

With episodes (version 4): the batch by Zipf, each completion in 15 turns of any lengths, no two
observations alike; the cost of a turn is what the message grows by.

    python benchmarks/wire.py [--quick]
"""

import hashlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import harness
import numpy as np
import torch
from harness import Row
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.trainers import BpeTrainer

from potluck.exchange import Key, Message, Provenance, decode, encode
from potluck.exchange.keys.keys import verify
from potluck.exchange.wire.message import NO_TOKENIZER
from potluck.model import LanguageModel
from potluck.rollout.base import EngineSettings, RandomSampler, RolloutRequest
from potluck.rollout.hf import HFEngine
from potluck.schedule import PLANS, problems_of_round
from potluck.tasks.arithmetic import DigitsOptions
from potluck.types import Completion, Sampling

CODECS = "raw", "exact", "compact"
VOCABULARY = 151_936
COMPLETIONS, TOKENS = 144, 300
TOKEN_BYTES = 8
TARGET_BYTES = {"exact": 5.0, "compact": 2.6}
TARGET_MB_S = 200.0
IDS_ALONE_BYTES = 1.8
"""Target of "exact" without log-probabilities, which "compact" equals then."""
SHARES = ((2, "vertical"), (4, "vertical"), (4, "horizontal"))
TURNS, TURN_BYTES = 15, 4.0
"""Turns of an episode, and the most that each may cost more than its tokens."""
VERBS = ("encode", "decode", "encode sealed", "decode sealed")


def measure(quick: bool) -> tuple[list[Row], object]:
    synthetic, written = synthetic_batches(), written_batches()
    calls, turns = (2, 2) if quick else (20, 15)
    rows, raw = [], {}
    for name, batch in {**written, **synthetic}.items():
        aimed = name in written or name == "Zipf"
        for codec in CODECS:
            cost = bytes_a_token(batch, codec)
            speeds = {
                verb: [round(TOKEN_BYTES * tokens_of(batch) * calls / s / 1e6) for s in seconds]
                for verb, seconds in timed(batch, codec, calls, turns, name).items()
            }
            raw[f"{name}, {codec}"] = {"bytes_a_token": cost, "mb_s": speeds}
            target = TARGET_BYTES.get(codec) if aimed else None
            rows.append(Row(f"{name}, {codec}", cost, cost, cost, " B/token", at_most=target))
            if name == "Zipf":
                rows += [
                    Row(f"{name}, {codec}: {verb}", statistics.median(each), min(each), max(each),
                        " MB/s", at_least=TARGET_MB_S)
                    for verb, each in speeds.items()
                ]  # fmt: skip
        for codec in ("raw", "exact"):
            cost, title = bytes_a_token(ids_alone(batch), codec), f"{name}, {codec}, ids alone"
            raw[title] = {"bytes_a_token": cost, "mb_s": {}}
            target = IDS_ALONE_BYTES if aimed and codec == "exact" else None
            rows.append(Row(title, cost, cost, cost, " B/token", at_most=target))
    for codec in CODECS:
        cost, title = bytes_a_turn(synthetic["Zipf"], codec), f"Zipf, {codec}, {TURNS} turns each"
        raw[title] = {"bytes_a_turn": cost}
        target = None if codec == "raw" else TURN_BYTES
        rows.append(Row(title, cost, cost, cost, " B/turn", at_most=target))
    forms = prose_batches()
    tokens = tokens_of(forms["prose"])
    for name, batch in forms.items():
        for codec in CODECS:
            cost = sealed_size(batch, codec) / tokens
            raw[f"{name}, {codec}"] = {"bytes_a_token": cost, "mb_s": {}}
            rows.append(Row(f"{name}, {codec}", cost, cost, cost, " B/token"))
    everything({name: seen for name, seen in raw.items() if "mb_s" in seen})
    return rows, raw


def synthetic_batches() -> dict[str, Message]:
    generator, count = np.random.default_rng(0), COMPLETIONS * TOKENS
    weight_V = 1 / np.arange(1, VOCABULARY + 1)
    zipf_X = np.searchsorted(weight_V.cumsum() / weight_V.sum(), generator.random(count))
    zipf_X = zipf_X.clip(max=VOCABULARY - 1)
    near_X, wide_X = (
        log_sigmoid(generator.normal(8, 5, count)),
        log_sigmoid(generator.normal(4, 3, count)),
    )
    return {
        "Zipf": synthetic(zipf_X, near_X),
        "Zipf, shuffled": synthetic(generator.permutation(VOCABULARY)[zipf_X], near_X),
        "Zipf, wide log-probs": synthetic(zipf_X, wide_X),
        "uniform": synthetic(generator.integers(0, VOCABULARY, count), near_X),
    }


def log_sigmoid(x_X: np.ndarray) -> np.ndarray:
    """As an engine does: the largest logit off, then the logarithm of the sum, in float32."""
    x_X = x_X.astype(np.float32)
    top_X = np.maximum(x_X, 0)
    sum_X = np.exp(x_X - top_X) + np.exp(-top_X)
    return np.minimum(x_X - top_X - np.log(sum_X), 0)


def synthetic(token_X: np.ndarray, logp_X: np.ndarray) -> Message:
    return message(
        Completion.cut(
            [f"gsm8k/train/{40 * (i // 12) + 7}" for i in range(COMPLETIONS)],
            "north",
            [i % 12 for i in range(COMPLETIONS)],
            ["stop"] * COMPLETIONS,
            [TOKENS] * COMPLETIONS,
            token_X.astype(np.int32),
            logp_X,
        )
    )


def prose_batches() -> dict[str, Message]:
    """The same completions as ids, as ids and texts, and as texts alone."""
    pages = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
    prose = "".join(page.read_text() for page in pages)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [prose],
        BpeTrainer(
            vocab_size=8192, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )  # fmt: skip
    texts = [prose[1000 * at :][:1000] for at in range(COMPLETIONS)]
    ids = [tokenizer.encode(text).ids for text in texts]
    logp_X = log_sigmoid(np.random.default_rng(0).normal(8, 5, sum(map(len, ids))))
    written = Completion.cut(
        [f"gsm8k/train/{40 * (i // 12) + 7}" for i in range(COMPLETIONS)],
        "north",
        [i % 12 for i in range(COMPLETIONS)],
        ["length"] * COMPLETIONS,
        [len(each) for each in ids],
        np.concatenate([np.array(each, np.int32) for each in ids]),
        logp_X,
    )
    plain = message(written)
    made, asked = plain.provenance, {"questions": plain.prompts}
    named = (replace(c, tokenizer=made.tokenizer) for c in written)
    both = [replace(c, text=text) for c, text in zip(named, texts, strict=True)]
    nothing = np.zeros(0, np.int32)
    alone = [replace(c, token_T=nothing, logp_T=None, tokenizer=b"") for c in both]
    with_texts = replace(plain, completions=tuple(both), **asked)
    return {
        "prose": plain,
        "prose, ids alone": ids_alone(plain),
        "prose, ids and texts": with_texts,
        "prose, ids and texts, no log-probs": ids_alone(with_texts),
        "prose, texts alone": replace(
            plain,
            completions=tuple(alone),
            provenance=replace(made, tokenizer=NO_TOKENIZER),
            prompts=dict.fromkeys(plain.prompts, b""),
            **asked,
        ),
    }


def written_batches(*models: str) -> dict[str, Message]:
    task, batches = DigitsOptions().make(), {}
    ids = problems_of_round(task.ids("train"), seed=0, round=0, count=24)
    for model in models or ("digits-small", "digits-terse", "digits-large"):
        policy = LanguageModel.load(f"builtin:{model}", device="cpu")
        engine = HFEngine(policy, EngineSettings(48, 96, rows=64))
        for nodes, plan in SHARES:
            weights = {f"node-{at}": 1.0 for at in range(nodes)}
            shares = [s for s in PLANS[plan](ids, weights, 12) if s.node == "node-0"]
            requests = [RolloutRequest(task.problem(s.problem_id), s.count) for s in shares]
            sampler = RandomSampler(torch.Generator().manual_seed(0))
            written = engine.generate(
                requests, sampler, author="node-0", progress=lambda done, all: None
            )
            batches[f"{model}, {nodes} nodes, {plan}"] = message(tuple(written))
    return batches


def message(completions: tuple[Completion, ...]) -> Message:
    prints = (hashlib.sha256(what).digest()[:16] for what in (b"model", b"tokenizer", b"task"))
    ids = dict.fromkeys(c.problem_id for c in completions)
    prompts = {id: hashlib.sha256(id.encode()).digest()[:8] for id in ids}
    made = Provenance(*prints, Sampling())
    return Message("digits", 7, completions[0].author, made, prompts, completions)


def ids_alone(batch: Message) -> Message:
    """The batch as it is sent where no method reads log-probabilities."""
    return replace(batch, completions=tuple(replace(c, logp_T=None) for c in batch.completions))


def in_turns(batch: Message) -> Message:
    """The same tokens, as episodes of TURNS turns."""
    dice, made = np.random.default_rng(1), []
    for c in batch.completions:
        cuts = np.sort(dice.choice(np.arange(1, len(c.token_T)), TURNS - 1, replace=False))
        turns = np.diff([0, *cuts, len(c.token_T)]).tolist()
        made.append(replace(c, turns=tuple(turns), observed=dice.bytes(2 * (TURNS - 1))))
    return replace(batch, completions=tuple(made))


def bytes_a_turn(batch: Message, codec: str) -> float:
    grown = sealed_size(in_turns(batch), codec) - sealed_size(batch, codec)
    return grown / (TURNS * len(batch.completions))


def tokens_of(batch: Message) -> int:
    return sum(len(c.token_T) for c in batch.completions)


def sealed_size(batch: Message, codec: str) -> int:
    return len(Key.new().sign(b"batch", encode(batch, codec=codec)))


def bytes_a_token(batch: Message, codec: str) -> float:
    return sealed_size(batch, codec) / tokens_of(batch)


def timed(batch: Message, codec: str, calls: int, turns: int, title: str) -> dict[str, list[float]]:
    """Seconds that ``calls`` calls of each verb took, turn by turn."""
    key = Key.new()
    public, data = key.public, encode(batch, codec=codec)
    signed = key.sign(b"batch", data)
    work: tuple[Callable[[], object], ...] = (
        lambda: encode(batch, codec=codec),
        lambda: decode(data),
        lambda: key.sign(b"batch", encode(batch, codec=codec)),
        lambda: decode(verify(b"batch", signed, public)),
    )
    contenders = {verb: partial(repeated, do, calls) for verb, do in zip(VERBS, work, strict=True)}
    return harness.take_turns(contenders, turns, f"{title}, {codec}")


def repeated(do: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        do()
    return time.perf_counter() - start


def everything(raw: dict[str, dict]) -> None:
    """All batches and codecs: bytes a token, and megabytes a second of each verb."""
    table = Table("batch, codec", "bytes/token", *VERBS, title="MB/s of 8 bytes a token")
    for name, seen in raw.items():
        speeds = (f"{statistics.median(s):.0f}" for s in seen["mb_s"].values())
        table.add_row(name, f"{seen['bytes_a_token']:.2f}", *speeds)
    Console(width=None if sys.stdout.isatty() else 110).print(table)


if __name__ == "__main__":
    harness.run("wire", measure, model="digits-small, digits-terse, digits-large; synthetic")
