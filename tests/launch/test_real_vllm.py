"""Potluck through a real vLLM; minutes, so only where one is named (make test-vllm):

POTLUCK_VLLM_PYTHON=/venv/bin/python    a Python that has vLLM: servers are started and killed
POTLUCK_VLLM_URL=http://HOST:PORT       or one that runs, in float32 and started as ``Server``
                                        does; what needs one of its own is left out then

docs/vllm.md, "Without a GPU", says how vLLM is installed for a CPU.
"""

import json
import os
import shutil
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from displays import Listener
from launch.runs import lines
from potluck.config import from_tree
from potluck.launch.in_process import run
from potluck.model import LanguageModel
from potluck.model.loading import BUILT_IN
from potluck.rollout.base import EngineSettings, RandomSampler, RolloutError, RolloutRequest
from potluck.rollout.options import VllmOptions
from potluck.types import Problem, Sampling
from real_server import RealServer

PYTHON, URL = os.environ.get("POTLUCK_VLLM_PYTHON"), os.environ.get("POTLUCK_VLLM_URL")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not (PYTHON or URL), reason="set POTLUCK_VLLM_PYTHON, see docs/vllm.md"),
]
TOLERANCE = 1e-5
"""Nats a token: float32 on both sides. Weights of one round ago are 40 times farther."""
STARTS_S = 600
NAME, ADAPTER = "served", "adapter"
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


class Server(RealServer):
    """A vLLM on a model folder, in processes of its own."""

    def start(self):
        command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", self.model]
        command += ["--served-model-name", NAME, "--host", "127.0.0.1", "--port", self.port]
        command += ["--max-model-len", "128", "--dtype", "float32", "--enforce-eager"]
        command += ["--enable-lora", "--max-lora-rank", "16"]
        self.launch(command, ENVIRONMENT)

    def wait(self):
        self.wait_for("/v1/models", STARTS_S)


class Remote:
    """The server at POTLUCK_VLLM_URL, whose model folder is seen here too."""

    def __init__(self):
        self.url = URL
        with urllib.request.urlopen(URL + "/v1/models", timeout=30) as answer:
            cards = json.loads(answer.read())["data"]
        self.model = Path(next(card["root"] for card in cards if card["id"] == NAME))


@pytest.fixture(scope="module")
def untied(tmp_path_factory):
    """digits-large, whose heads vLLM can do on a CPU, with an output head of its own."""
    folder = tmp_path_factory.mktemp("models") / "untied"
    network = AutoModelForCausalLM.from_pretrained(BUILT_IN / "digits-large", dtype=torch.float32)
    if network.config.tie_word_embeddings:
        network.config.tie_word_embeddings = False
        head = network.get_input_embeddings().weight.detach().clone()
        network.lm_head.weight = torch.nn.Parameter(head)
    network.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):  # saved anew it has a token more
        shutil.copy(BUILT_IN / "digits-large" / name, folder)
    return folder


@pytest.fixture(scope="module")
def server(untied, tmp_path_factory):
    if not PYTHON:
        yield Remote()
        return
    made = Server(untied, tmp_path_factory.mktemp("log") / "server.log")
    made.start()
    try:
        made.wait()
        yield made
    finally:
        made.kill()


def recipe(server, *, rounds=2, table=None, **node):
    engine = {"name": "vllm", "url": server.url, "model": NAME, "tolerance": TOLERANCE}
    engine["dtype"] = "float32"  # the server's; the model's files are in bfloat16
    small = {"model": "builtin:digits-small", "learning_rate": 1e-4}
    large = {"model": str(server.model), "learning_rate": 2e-4, "engine": engine | (table or {})}
    tree = {
        "name": "real",
        "rounds": rounds,
        "threads": 1,
        "problems_per_round": 8,
        "group_size": 8,
        "sampling": {"max_new_tokens": 48, "max_total_tokens": 96},
        "evaluation": {"every": 0, "problems": 8, "out_of_distribution": 0},
        "node": {"small": small, "large": large | node},
    }
    return from_tree(tree)


def assert_all_ours(folder, rounds):
    came = lines(folder, "large")
    assert len(came) == rounds
    for line in came:
        own = line["sources"]["large"]
        print(
            f"round {line['round']}: server {line['server_apart']:.1e} nats a token apart, "
            f"log-ratio {own['log_ratio_mean'] or 0:.1e}, reward {line['own_reward_mean']:.2f}, "
            f"write {line['seconds']['write']:.1f} s, learn {line['seconds']['learn']:.1f} s"
        )
        assert line["server_apart"] < TOLERANCE
        assert abs(own["log_ratio_mean"] or 0) < TOLERANCE
        assert line["rows_trained"] > 0
    return came


def engine_of(server, policy, folder, tolerance=TOLERANCE):
    settings = EngineSettings(40, 96, node="north", folder=folder)
    options = VllmOptions(
        url=server.url, model=NAME, dtype="float32", concurrency=8, tolerance=tolerance
    )
    return options.build(policy, settings)


def write(engine, temperature=1.0, top_k=0, top_p=1.0):
    requests = [RolloutRequest(Problem(f"p{i}", f"{i}2+3{i}=", ""), 8) for i in range(3)]
    sampler = RandomSampler(torch.Generator().manual_seed(0), Sampling(temperature, top_k, top_p))
    return engine.generate(requests, sampler, author="me", progress=lambda *_: None)


def apart(policy, written):
    prompts = [policy.prompt(Problem("", f"{c.problem_id[1:]}2+3{c.problem_id[1:]}=", ""))
               for c in written]  # fmt: skip
    return policy.logp_gap(prompts, written, temperature=1.0)


def test_two_rounds_of_lora(server, tmp_path):
    # First: a run of full weights leaves its own in the server, and an adapter goes without a base.
    folder = tmp_path / "run"
    run(recipe(server, lora={"r": 8}, table={"model": ADAPTER}), folder)
    assert_all_ours(folder, 2)


def test_two_rounds_of_full_weights(server, tmp_path):
    run(recipe(server), tmp_path / "run")
    assert_all_ours(tmp_path / "run", 2)


def test_three_rounds_are_each_written_while_the_one_before_is_learned_from(server, tmp_path):
    run(recipe(server, rounds=3, table={"overlap": True}), tmp_path / "run")
    for line in lines(tmp_path / "run", "large"):
        own, seconds = line["sources"]["large"], line["seconds"]
        print(
            f"round {line['round']}: server {line['server_apart']:.1e} nats a token apart from the "
            f"weights that wrote, log-ratio to those that learn {own['log_ratio_mean'] or 0:.1e}, "
            f"waited for it {seconds['write']:.1f} s, learn {seconds['learn']:.1f} s"
        )
        assert line["server_apart"] < TOLERANCE


PARTS = {
    "nothing": lambda name: False,
    "embedding": lambda name: "embed" in name,
    "head": lambda name: "lm_head" in name,
    "norms": lambda name: "norm" in name,
    "attention": lambda name: "attn" in name and name.endswith("weight"),
    "biases": lambda name: name.endswith("bias"),
    "mlp": lambda name: "mlp" in name,
    "all": lambda name: True,
}


@pytest.mark.parametrize("part", PARTS)
def test_a_reload_renews_every_part_of_the_weights(server, tmp_path, part):
    policy = LanguageModel.load(str(server.model), device="cpu")
    old = LanguageModel.load(str(server.model), device="cpu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in policy.network.named_parameters():
            if PARTS[part](name):
                noise = torch.randn(weight.shape, generator=generator)
                weight += 0.2 * weight.std().clamp(min=0.05) * noise
    written = write(engine_of(server, policy, tmp_path / "served"))
    new, before = apart(policy, written), apart(old, written)
    print(f"{part}: {new:.1e} from the new weights, {before:.1e} from the old")
    assert new < TOLERANCE
    assert part == "nothing" or before > 100 * TOLERANCE


@pytest.mark.parametrize("draw", [{"top_k": 3}, {"top_p": 0.5}, {}])
def test_log_probabilities_are_those_before_truncation(server, tmp_path, draw):
    policy = LanguageModel.load(str(server.model), device="cpu")
    assert apart(policy, write(engine_of(server, policy, tmp_path / "served"), **draw)) < TOLERANCE


def test_the_wrong_mode_is_refused_at_the_default_tolerance(server, tmp_path):
    """It was started with raw_logprobs, which are those at temperature 1."""
    policy = LanguageModel.load(str(server.model), device="cpu")
    engine = engine_of(server, policy, tmp_path / "served", tolerance=0.1)
    with pytest.raises(RolloutError, match=r"of another mode.*--logprobs-mode proc") as caught:
        write(engine, temperature=0.7)
    print(caught.value)


@pytest.mark.skipif(not PYTHON, reason="needs a server of its own")
def test_a_server_killed_in_the_middle_of_a_round_goes_on_with_its_weights(server, tmp_path):
    class Kills(Listener):
        """Kills the server in the second round, once the first answer of it is here."""

        round, killed = 0, False

        def round_done(self, node, report):
            self.round = report.round + 1

        def phase(self, node, phase, done, total):
            if self.round == 1 and (node, phase) == ("large", "write") and 0 < done < total:
                if not self.killed:
                    server.kill()
                    server.start()
                    print(f"[killed after {done} of {total} completions]")
                self.killed = True

    display = Kills()
    config = recipe(server, rounds=3, table={"concurrency": 1})
    run(config, tmp_path / "run", display=display)
    assert display.killed
    server.wait()
    assert_all_ours(tmp_path / "run", 3)


@pytest.mark.skipif(not PYTHON, reason="needs a server of its own")
def test_a_tied_head_is_renewed_or_the_run_stops_and_says_so(server, tmp_path):
    server.kill()  # two at once are slow
    shutil.copytree(BUILT_IN / "digits-large", tmp_path / "tied")
    tied = Server(tmp_path / "tied", tmp_path / "server.log")
    policy = LanguageModel.load(str(tied.model), device="cpu")
    assert policy.network.config.tie_word_embeddings
    tied.start()
    try:
        tied.wait()
        engine = engine_of(tied, policy, tmp_path / "served")
        assert apart(policy, write(engine)) < TOLERANCE
        with torch.no_grad():
            weight = policy.network.get_input_embeddings().weight
            weight += 0.01 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
        with suppress(RolloutError):
            assert apart(policy, write(engine)) < TOLERANCE
            print("the head was renewed")
            return
        with pytest.raises(RolloutError, match="keep the old head of a model that ties") as caught:
            write(engine)
        print(caught.value)
    finally:
        tied.kill()
