"""What two processes do together, for ``tests/node/test_processes.py``, which judges it.

``launch`` is torchrun without its imports, three times five seconds; as a user starts it:
``torchrun --nproc-per-node 2 tests/process_group_session.py FOLDER``. Each process leaves what it
found in FOLDER/<rank>.pt. One session for everything, as most of its time is its start.
"""

import atexit
import copy
import faulthandler
import os
import signal
import sys
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.tensor import DTensor

import tiny
from displays import Listener
from node.test_learner import POISON, Breaks, Recording
from nouns import completion, group
from potluck.launch.in_process import run
from potluck.model import LanguageModel
from potluck.model import policy as policy_module
from potluck.model.sharding import ShardedModel, full_tensor
from potluck.model.training import add_adapter, trained
from potluck.node.learning.batch import pack
from potluck.node.learning.group import SINGLE_PROCESS, process_group
from potluck.node.learning.workers import DistributedEngine, generate_together
from potluck.node.storage.folder import rounds_saved
from potluck.objective.methods import METHODS, ObjectiveConfig
from potluck.rollout.base import EngineSettings, GreedySampler, RandomSampler, RolloutRequest
from potluck.rollout.options import HFOptions
from potluck.types import NonFiniteError, PotluckError, Problem

HANGS_AFTER_S = int(os.environ.get("HANGS_AFTER_S") or 600)
SETTINGS = EngineSettings(6, 32, rows=8, node="north")


@dataclass(frozen=True)
class Case:
    """One batch and how it is learned from."""

    objective: ObjectiveConfig = field(default_factory=tiny.f_tis)
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
    """True: nothing is left to be learned, once the filter has looked."""
    dtype: torch.dtype = torch.float32
    reference: bool = False
    """True: a KL to another model, or to the policy without its adapter."""
    untrusted: bool = False
    """Whether "east", which is not trusted, wrote the second half of each group."""
    poison: str = ""
    """What it spoils: "log-probability" or "gradient"; of a row of ``poisoned_author``."""
    poisoned_author: str = "south"
    poisoned_row: tuple[int, int] = (0, 1)
    """Its group, and its place in it."""


LOUD = tiny.f_tis(filter=False)
MILD = tiny.f_tis(untrusted_exponent=0.1)
CASES = {
    "f-tis": Case(),
    "lws, dr_grpo": Case(ObjectiveConfig(**METHODS["lws"].fields, loss_type="dr_grpo")),
    "one process without rows": Case(budget=10_000),
    "an odd number of pieces, a chunk at a time": Case(
        budget=40, chunk=True, tied=True, checkpointing=True
    ),
    "rows silenced in one process and not in the other, clipped": Case(
        tiny.f_tis(divergence_limit=1e-6), budget=1, lr=1.0, clip=0.01
    ),
    "nothing left": Case(tiny.f_tis(divergence_limit=1e-9), only_bad=True),
    "prompts read once in layers that compute twice": Case(budget=60, checkpointing=True),
    "three updates": Case(
        tiny.f_tis(updates_per_round=3, divergence_limit=3.0), budget=30, lr=0.05, spread=0.5
    ),
    "kl, one process without rows": Case(
        tiny.f_tis(beta=0.5, updates_per_round=2, loss_type="dapo"), reference=True, budget=10_000
    ),
    "kl of an adapter": Case(
        tiny.f_tis(beta=0.5, updates_per_round=2), reference=True, lora=True, lr=0.1, budget=10
    ),
    "bfloat16": Case(dtype=torch.bfloat16),
    "bfloat16 adapter": Case(dtype=torch.bfloat16, lora=True),
    "dropout": Case(dropout=0.3, budget=10_000),
    "bad log-probability": Case(LOUD, poison="log-probability", poisoned_row=(2, 1)),
    "bad gradient": Case(LOUD, poison="gradient", budget=1),
    "not trusted, one process without rows": Case(MILD, untrusted=True, budget=10_000),
    "not trusted, two updates": Case(
        tiny.f_tis(untrusted_exponent=0.1, updates_per_round=2), untrusted=True, lr=0.05
    ),
    "not trusted, bad gradient": Case(
        MILD, untrusted=True, poison="gradient", poisoned_author="east", poisoned_row=(0, 2)
    ),
    "own bad log-probability": Case(LOUD, poison="log-probability", poisoned_author="north"),
    "own bad gradient": Case(LOUD, poison="gradient", poisoned_author="north"),
}


def groups_of(case, policy):
    """Groups of unlike lengths, off-policy by ``spread`` nats or so; the second has no spread."""
    generator = np.random.default_rng(0)
    made = []
    for g in range(3):
        problem, rows = Problem(f"p{g}", "1+2="[: generator.integers(1, 5)], "3"), []
        for i in range(4):
            ids = generator.integers(POISON + 1, tiny.VOCABULARY, int(generator.integers(1, 9)))
            ids[-1] = tiny.STOP
            logps = -case.spread * generator.exponential(2.0, len(ids))
            author = "east" if case.untrusted and i >= 2 else "south"
            if case.reference and i >= 2:  # of "south", too, so that a piece may have none
                author = "north"
            if case.poison and (g, i) == case.poisoned_row:
                ids, logps = np.array([5, POISON, 6, tiny.STOP]), -np.ones(4)
                author = case.poisoned_author
            rows.append(completion(ids, logps, problem=problem.id, author=author, index=i))
        rewards = [1.0] * 4 if g == 1 else [float(i % 2 == 0) for i in range(4)]
        made.append(group(problem, rows, rewards, policy))
    return made


def language_of(case):
    policy = tiny.policy(attention_dropout=case.dropout)
    network = policy.network
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
    made = LanguageModel(network, policy.tokenizer, dtype=case.dtype)
    if case.checkpointing:
        made.checkpoint_activations()
    return made


class Unled:
    """Processes that need no lead: commands are only recorded."""

    def __init__(self, processes):
        self.rank, self.size, self.heard = processes.rank, processes.size, []
        self.all_gather = processes.all_gather

    def broadcast(self, *command):
        self.heard.append(command)


def learn(case, processes=SINGLE_PROCESS):
    """What a round makes of the case, in one piece; an error as its text."""
    policy = language_of(case)
    reference = tiny.policy(seed=1, sharpness=15) if case.reference and not case.lora else None
    if processes.size > 1:
        policy = ShardedModel(policy, torch.device("cpu"))
        if reference:
            reference.network.requires_grad_(False)
            reference = ShardedModel(reference, torch.device("cpu"))
    optimizer = torch.optim.SGD(trained(policy.network), lr=case.lr)
    learner = Recording(
        name="north", policy=policy, optimizer=optimizer, objective=case.objective,
        temperature=0.9, gradient_clip_norm=case.clip, micro_batch_tokens=case.budget,
        processes=processes, longest=9,
        reference=policy if case.reference and case.lora else reference,
    )  # fmt: skip
    read, inputs = set(), policy._inputs

    def seen(*given):
        made = inputs(*given)
        read.add(type(made).__name__)
        return made

    policy._inputs = seen
    torch.manual_seed(processes.rank)
    before = policy_module.LOGITS_AT_ONCE
    policy_module.LOGITS_AT_ONCE = 150 if case.chunk else before
    batch = pack(groups_of(case, policy), trusts=lambda author: author != "east")
    if case.only_bad:
        batch = replace(batch, advantage_B=batch.advantage_B.clamp(max=0))
    steps = []
    try:
        report = learner.learn(batch, lambda done, total: steps.append((done, total)))
    except NonFiniteError as error:
        return {"error": str(error)}
    finally:
        policy_module.LOGITS_AT_ONCE = before
    told = ("loss", "updates", "gradient_norm", "shares")
    found = {name: getattr(report, name) for name in told} | {
        name: getattr(report.scored, name) for name in ("kept_advantage_B", "metrics_BK", "dropped")
    }
    return found | {
        "gradient": learner.seen or None,
        "weights": [full_tensor(p.detach()).clone() for p in policy.network.parameters()],
        "steps": steps,
        "read": read,
        "spread": all(isinstance(p, DTensor) for p in policy.network.parameters()),
    }


def write(processes):
    """A replica is the network it is of; orders come back in order, whoever wrote them."""
    policy = tiny.policy(sharpness=2.0)
    plain = copy.deepcopy(policy.network).state_dict()
    sharded = ShardedModel(policy, torch.device("cpu"))
    copied = sharded.replica(torch.float32).network.state_dict()
    engine = DistributedEngine(sharded, SETTINGS, processes, HFOptions())
    requests = [RolloutRequest(Problem(f"p{i}", "1+2="[: 1 + i % 3], "3"), i % 3) for i in range(5)]

    def written(sampler, requests=requests):
        return engine.generate(requests, sampler, author="north", progress=lambda done, total: None)

    generator = torch.Generator().manual_seed(3)
    twins = [RolloutRequest(Problem(name, "1+2", "3"), 3) for name in "ab"]
    return {
        "apart": sum(isinstance(module, FSDPModule) for module in sharded.scorer.modules()),
        "held": sum(p.to_local().numel() for p in sharded.network.parameters()),
        "numbers": sum(p.numel() for p in sharded.network.parameters()),
        "same": all(torch.equal(plain[name], copied[name]) for name in plain),
        "greedy": written(GreedySampler()),
        "sampled": written(RandomSampler(generator)),
        "again": written(RandomSampler(generator)),
        "twins": written(RandomSampler(generator), requests=twins),
        "no_more_than_one": written(GreedySampler(), requests=requests[1:2]),
        "seeds": processes.heard[1][1].seeds,
        "trouble": _trouble(processes, sharded, processes.heard[0][1]),
    }


def _trouble(processes, sharded, order):
    """What each process raises if the second one cannot write."""

    def progress(done, total):
        if processes.rank == 1:
            raise NonFiniteError("of the second")

    try:
        generate_together(processes, sharded, order, progress)
    except PotluckError as error:
        return str(error)
    return ""


def recipe(models, *overrides):
    return tiny.recipe(
        {"full": f"{models}/full", "adapter": f"{models}/adapter"},
        *("checkpoint_every=1", "evaluation.problems=4", "evaluation.out_of_distribution=3"),
        *("node.full.device=cpu", "node.adapter.device=cpu"),
        *("node.adapter.learning_rate=1e-2", "node.adapter.lora={r=2}"),
        *overrides,
    )


class PressesCtrlC(Listener):
    """While the second node writes for the second time."""

    seen = 0

    def round_done(self, node, report):
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


def launch(folder):
    """Do as ``torchrun --standalone --nproc-per-node 2``, in forked processes: FOLDER/said."""
    with (folder / "said").open("w") as said:
        for number in (1, 2):
            os.dup2(said.fileno(), number)
    config = LaunchConfig(
        1, 1, 2, run_id=str(uuid.uuid4()), rdzv_backend="c10d", rdzv_endpoint="localhost:0",
        max_restarts=0, start_method="fork", shutdown_timeout=5,
    )  # fmt: skip
    elastic_launch(config, main)(folder)


def main(folder):
    faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # forked.py holds it back
    _session(folder)
    faulthandler.cancel_dump_traceback_later()
    atexit._run_exitfuncs()  # a forked process leaves them out, and a group ends there


def _session(folder):
    models, found = folder / "models", {}
    found["cut"] = outcome_of(recipe(models), folder / "two", display=PressesCtrlC())
    found["saved"] = rounds_saved(folder / "two" / "adapter")
    found["run"] = outcome_of(recipe(models), folder / "two", resume=True)
    found["resumed"] = outcome_of(recipe(models), folder / "one", resume=True)
    eight_bit = "node.full.optimizer=adamw-8bit"
    found["refused"] = outcome_of(recipe(models, eight_bit), folder / "refused")
    # The leader has the model, the other one what is left of it.
    here = "full" if os.environ["RANK"] == "0" else "broken"
    broken = recipe(models, f"node.full.model={models}/{here}")
    found["broken"] = outcome_of(broken, folder / "broken")
    with process_group() as processes:
        found["cases"] = {name: learn(case, Unled(processes)) for name, case in CASES.items()}
        found["write"] = write(Unled(processes))
    torch.save(found, folder / f"{os.environ['RANK']}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
