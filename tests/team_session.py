"""What two processes do together, for ``tests/node/test_team.py``, which judges it.

``torchrun --nproc-per-node 2 tests/team_session.py FOLDER``: each process leaves what it found
in FOLDER/<rank>.pt. One session for everything, as most of its time is its start.
"""

import copy
import faulthandler
import os
import signal
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

import tiny
from nouns import completion
from potluck.config import METHODS, ObjectiveConfig, from_tree
from potluck.launch import Silent, run
from potluck.node import Learner, pack
from potluck.node.followers import TeamEngine, write_together
from potluck.node.team import ALONE, assembled
from potluck.rollout import Greedy, LanguageModel, Order, Sampled, scoring
from potluck.rollout.lora import add_adapter, trained
from potluck.rollout.sharding import ShardedModel, whole
from potluck.types import Group, NonFiniteError, PotluckError, Problem

HANGS_AFTER_S = int(os.environ.get("HANGS_AFTER_S") or 150)
POISON = 7


@dataclass(frozen=True)
class Case:
    """One batch and how it is learned from."""

    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    budget: int = 20
    lr: float = 0.0
    clip: float = 1e9
    spread: float = 1.0
    tied: bool = False
    lora: bool = False
    checkpointing: bool = False
    chunk: bool = False
    dropout: float = 0.0
    only_bad: bool = False
    """Whether nothing is left to be learned, once the filter has looked."""
    dtype: torch.dtype = torch.float32
    poison: str = ""
    """What it spoils: "log-probability" or "gradient"; of a row of ``poisoned_author``."""
    poisoned_author: str = "south"
    poisoned_row: tuple[int, int] = (0, 1)
    """Its group, and its place in it."""


LOUD = ObjectiveConfig(filter=False)
CASES = {
    **{name: Case(ObjectiveConfig(**METHODS[name])) for name in METHODS},
    "a row a piece": Case(budget=1),
    "one process without rows": Case(budget=10_000),
    "an odd number of pieces": Case(budget=45),
    "rows silenced in one process and not in the other": Case(
        ObjectiveConfig(divergence_limit=1e-6), budget=1
    ),
    "nothing left": Case(ObjectiveConfig(divergence_limit=1e-9), only_bad=True),
    "three updates": Case(
        ObjectiveConfig(updates_per_round=3, divergence_limit=3.0), budget=30, lr=0.05, spread=0.5
    ),
    "clipped": Case(budget=1, lr=1.0, clip=0.01),
    "tied": Case(tied=True),
    "adapter": Case(lora=True, lr=0.1, objective=ObjectiveConfig(updates_per_round=2)),
    "checkpointing": Case(checkpointing=True, tied=True),
    "a chunk at a time": Case(chunk=True, tied=True, checkpointing=True),
    "bfloat16": Case(dtype=torch.bfloat16),
    "bfloat16 adapter": Case(dtype=torch.bfloat16, lora=True),
    "dropout": Case(dropout=0.3, budget=10_000),
    "bad log-probability": Case(LOUD, poison="log-probability", budget=10),
    "bad log-probability, no row left": Case(LOUD, poison="log-probability", budget=1),
    "bad log-probability in the second": Case(
        LOUD, poison="log-probability", budget=1, poisoned_row=(2, 1)
    ),
    "bad gradient": Case(LOUD, poison="gradient", budget=1),
    "own bad log-probability": Case(LOUD, poison="log-probability", poisoned_author="north"),
    "own bad gradient": Case(LOUD, poison="gradient", poisoned_author="north"),
}


def groups_of(case):
    """Groups of unlike lengths, off-policy by ``spread`` nats or so; the second has no spread."""
    dice = np.random.default_rng(0)
    made = []
    for g in range(3):
        problem, rows = Problem(f"p{g}", "1+2="[: dice.integers(1, 5)], "3"), []
        for i in range(4):
            ids = dice.integers(POISON + 1, tiny.VOCABULARY, int(dice.integers(1, 9)))
            ids[-1] = tiny.STOP
            logps, author = -case.spread * dice.exponential(2.0, len(ids)), "south"
            if case.poison and (g, i) == case.poisoned_row:
                ids, logps = np.array([5, POISON, 6, tiny.STOP]), -np.ones(4)
                author = case.poisoned_author
            rows.append(completion(ids, logps, problem=problem.id, author=author, index=i))
        rewards = [1.0] * 4 if g == 1 else [float(i % 2 == 0) for i in range(4)]
        made.append(Group(problem, tuple(rows), tuple(rewards)))
    return made


class Breaks(torch.nn.Module):
    """Wraps an embedding: the hidden state after POISON is NaN, or its gradient is infinite."""

    def __init__(self, embedding, what):
        super().__init__()
        self.embedding, self.what = embedding, what

    def forward(self, token_MS):
        hidden_MSD, hit = self.embedding(token_MS), (token_MS == POISON).unsqueeze(2)
        if self.what == "log-probability":
            return torch.where(hit, torch.nan, hidden_MSD)
        if hidden_MSD.requires_grad:
            hidden_MSD.register_hook(lambda slope: torch.where(hit, torch.inf, slope))
        return hidden_MSD


def language_of(case):
    language = tiny.language(attention_dropout=case.dropout)
    network = language.network
    if case.tied:
        network.config.tie_word_embeddings = True
        network.tie_weights()
        assert network.lm_head.weight is network.model.embed_tokens.weight
    if case.poison:
        network.model.embed_tokens = Breaks(network.model.embed_tokens, case.poison)
    if case.lora:
        network.to(case.dtype)
        add_adapter(network, rank=3, alpha=6.0, dropout=0.0, targets=["q_proj", "up_proj"], seed=0)
        for p in trained(network):  # B is zero at first, and A has no gradient then
            torch.nn.init.normal_(p, std=0.2, generator=torch.Generator().manual_seed(1))
    if case.checkpointing:
        network.activation_checkpointing_enable({"use_reentrant": False})
    return LanguageModel(network, language.tokenizer, dtype=case.dtype)


class Unled:
    """A team whose members get everywhere by themselves: what is called is only kept."""

    def __init__(self, team):
        self.rank, self.size, self.gather, self.heard = team.rank, team.size, team.gather, []

    def call(self, command):
        self.heard.append(command)


class LastGradient(torch.optim.SGD):
    """An optimiser that keeps the gradient it last stepped with."""

    seen = None

    def step(self):
        self.seen = [whole(p.grad).clone() for g in self.param_groups for p in g["params"]]
        super().step()


def learn(case, team=ALONE):
    """What a round makes of the case, in one piece; an error as its text."""
    language = language_of(case)
    if team.size > 1:
        language = ShardedModel(language, torch.device("cpu"))
    optimizer = LastGradient(trained(language.network), lr=case.lr)
    learner = Learner(
        name="north",
        language=language,
        optimizer=optimizer,
        objective=case.objective,
        temperature=0.9,
        gradient_clip_norm=case.clip,
        micro_batch_tokens=case.budget,
        team=team,
    )
    torch.manual_seed(team.rank)
    before = scoring.LOGITS_AT_ONCE
    scoring.LOGITS_AT_ONCE = 150 if case.chunk else before
    batch = pack(groups_of(case), language.prompt)
    if case.only_bad:
        batch = replace(batch, advantage_B=batch.advantage_B.clamp(max=0))
    steps = []
    try:
        lesson = learner.learn(batch, lambda done, total: steps.append((done, total)))
    except NonFiniteError as error:
        return {"error": str(error)}
    finally:
        scoring.LOGITS_AT_ONCE = before
    return {
        "gradient": optimizer.seen,
        "weights": [whole(p.detach()).clone() for p in language.network.parameters()],
        "steps": steps,
        "spread": all(isinstance(p, DTensor) for p in language.network.parameters()),
        **{name: getattr(lesson, name) for name in lesson.__dataclass_fields__},
    }


def write(team):
    """A replica is the network it is of; orders come back in order, whoever wrote them."""
    language = tiny.language(sharpness=2.0)
    plain = copy.deepcopy(language.network).state_dict()
    sharded = ShardedModel(language, torch.device("cpu"))
    copied = sharded.replica(torch.float32).network.state_dict()
    engine = TeamEngine(team, "north", sharded, 6, 32, torch.float32, 8)
    orders = [Order(Problem(f"p{i}", "1+2="[: 1 + i % 3], "3"), i % 3) for i in range(5)]

    def written(draw, orders=orders):
        return engine.write(orders, draw, author="north", progress=lambda done, total: None)

    dice = torch.Generator().manual_seed(3)
    twins = [Order(Problem(name, "1+2", "3"), 3) for name in "ab"]
    return {
        "apart": sum(isinstance(module, FSDPModule) for module in sharded.scorer.modules()),
        "held": sum(p.to_local().numel() for p in sharded.network.parameters()),
        "numbers": sum(p.numel() for p in sharded.network.parameters()),
        "same": all(torch.equal(plain[name], copied[name]) for name in plain),
        "greedy": written(Greedy()),
        "sampled": written(Sampled(dice)),
        "again": written(Sampled(dice)),
        "twins": written(Sampled(dice), orders=twins),
        "no_more_than_one": written(Greedy(), orders=orders[1:2]),
        "seeds": team.heard[1].dice.seeds,
        "trouble": _trouble(team, sharded, team.heard[0]),
    }


def _trouble(team, sharded, command):
    """What each process raises if the second one cannot write."""

    def progress(done, total):
        if team.rank == 1:
            raise NonFiniteError("of the second")

    try:
        write_together(team, sharded, command, progress)
    except PotluckError as error:
        return str(error)
    return ""


def recipe(models, *overrides):
    tree = {
        "name": "tiny",
        "rounds": 2,
        "problems_per_round": 4,
        "group_size": 4,
        "checkpoint_every": 1,
        "threads": 1,
        "task": {"name": "digits", "reward": "hash"},
        "sampling": {"max_new_tokens": 6, "max_total_tokens": 32},
        "evaluation": {"every": 0, "problems": 4, "out_of_distribution": 3},
        "node": {
            "full": {"model": f"{models}/full", "learning_rate": 1e-3, "device": "cpu"},
            "adapter": {
                "model": f"{models}/adapter",
                "learning_rate": 1e-2,
                "device": "cpu",
                "lora": {"r": 2},
            },
        },
    }
    return from_tree(tree, overrides)


class PressesCtrlC(Silent):
    """While the second node writes for the second time."""

    seen = 0

    def round_done(self, node, metrics):
        self.seen += 1

    def phase(self, node, name, done, total):
        if self.seen == 2 and (node, name) == ("adapter", "write"):
            self.seen += 1
            os.kill(os.getpid(), signal.SIGINT)


def outcome_of(config, folder, **options):
    try:
        result = run(config, folder, **options)
    except PotluckError as error:
        return f"{type(error).__name__}: {error}"
    return result.rounds, result.interrupted, dict(result.accuracy)


def main(folder):
    models, found = folder / "models", {}
    found["run"] = outcome_of(recipe(models), folder / "two")
    found["resumed"] = outcome_of(recipe(models), folder / "one", resume=True)
    found["cut"] = outcome_of(recipe(models), folder / "cut", display=PressesCtrlC())
    eight_bit = "node.full.optimizer=adamw-8bit"
    found["refused"] = outcome_of(recipe(models, eight_bit), folder / "refused")
    # The leader has the model, the other one what is left of it.
    here = "full" if os.environ["RANK"] == "0" else "broken"
    broken = recipe(models, f"node.full.model={models}/{here}")
    found["broken"] = outcome_of(broken, folder / "broken")
    with assembled() as team:
        found["cases"] = {name: learn(case, Unled(team)) for name, case in CASES.items()}
        found["write"] = write(Unled(team))
    torch.save(found, folder / f"{os.environ['RANK']}.pt")


if __name__ == "__main__":
    faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
    main(Path(sys.argv[1]))
