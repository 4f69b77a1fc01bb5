"""Models behind a real Tinker server, SkyRL on a CPU; minutes, so only where one is named (make
test-tinker):

POTLUCK_TINKER_PYTHON=/venv/bin/python    a Python that has skyrl[tinker,jax]: servers are started
POTLUCK_TINKER_URL=http://HOST:PORT       or one that runs, with a model of ``make_models`` whose
                                          folder is seen here; what needs others is left out then

docs/tinker.md says how both sides are installed.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distributions
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from displays import Listener
from launch.runs import lines
from nouns import group
from potluck.config import as_tree, from_tree
from potluck.launch.in_process import run
from potluck.model import LanguageModel, LearningRate, Reader
from potluck.model.loading import BUILT_IN, load_tokenizer
from potluck.node.learning.batch import pack
from potluck.node.learning.learner import Learner
from potluck.node.learning.remote import RemoteLearner
from potluck.node.storage.checkpoint import newest, served
from potluck.node.storage.export import export
from potluck.objective.methods import METHODS, ObjectiveConfig
from potluck.rollout.texts.options import TinkerOptions
from potluck.rollout.tinker import TinkerSession
from potluck.types import Completion, PotluckError, Problem
from real_server import RealServer

PYTHON, URL = os.environ.get("POTLUCK_TINKER_PYTHON"), os.environ.get("POTLUCK_TINKER_URL")
HAS_CLIENT = any(distributions(name="tinker"))  # a folder of tests has that name, too
pytestmark = [
    pytest.mark.tinker,
    pytest.mark.skipif(
        not (PYTHON or URL), reason="set POTLUCK_TINKER_PYTHON or _URL, see docs/tinker.md"
    ),
    pytest.mark.skipif(not HAS_CLIENT, reason="pip install 'potluck[tinker]'"),
]
needs_servers = pytest.mark.skipif(not PYTHON, reason="needs servers of its own")
LAUNCHER, REPOSITORY = Path(__file__).with_name("skyrl_server.py"), Path(__file__).parents[2]
STARTS_S, TIMEOUT_S, RANK = 300, 20.0, 8
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
SIZES |= {"max_position_embeddings": 128, "tie_word_embeddings": False, "initializer_range": 0.12}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
KINDS = {"llama": ("digits-small", 48), "qwen3": ("calculator-small", 27)}
"""Built-in model that has the tokenizer, and its number of ids, by the type of model."""
RATE, EPS = 1e-3, 1e-6
"""Adam's: with less, what is 0 but for rounding moves a number by the whole rate."""
LWS = ObjectiveConfig(**METHODS["lws"].fields, weight="likelihood")


def make_models(folder):
    """Save models of unlike tokenizers that end a sum with three digits; return their folders."""
    for name, (built_in, ids) in KINDS.items():
        torch.manual_seed(0)
        config = AutoConfig.for_model(name, vocab_size=ids, rope_theta=10_000.0, **SIZES, **IDS)
        made = AutoModelForCausalLM.from_config(config).float()
        tokenizer = load_tokenizer(f"builtin:{built_in}")
        adam = torch.optim.Adam(made.parameters(), lr=3e-3)
        for _ in range(100):
            sums = [f"{a}+{b}={c}" for a, b, c in torch.randint(100, 1000, (32, 3)).tolist()]
            ids_BT = torch.tensor([[*tokenizer(text).input_ids, 2] for text in sums])
            made(input_ids=ids_BT, labels=ids_BT).loss.backward()
            adam.step()
            adam.zero_grad()
        made.save_pretrained(folder / name)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(BUILT_IN / built_in / file, folder / name)
    return {name: str(folder / name) for name in KINDS}


class Server(RealServer):
    """SkyRL on a model folder, in processes of its own; what it keeps lies in ``folder``."""

    def __init__(self, model, folder, compiled, adapters=32):
        super().__init__(model, folder / "log")
        self.model, self.folder, self.adapters = model, folder, adapters
        self.environment = {
            "HF_HUB_OFFLINE": "1",
            "JAX_COMPILATION_CACHE_DIR": str(compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }

    def start(self):
        sizes = [str(RANK), str(self.adapters)]
        command = [PYTHON, LAUNCHER, self.model, self.port, self.folder, *sizes]
        self.launch(command, self.environment, cwd=self.folder)
        self.wait_for("/api/v1/healthz", STARTS_S)
        return self

    def forget(self):
        """Restart it without what it kept."""
        self.kill()
        for kept in ("checkpoints", "tinker.db"):
            (self.folder / kept).rename(self.folder / f"old-{kept}")
        self.start()

    def signal_engine(self, number):
        """Send a signal to what computes, not to what answers."""
        pid = self.process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), number)


class Remote:
    """The server at POTLUCK_TINKER_URL."""

    def __init__(self):
        self.url = URL
        with urllib.request.urlopen(URL + "/api/v1/get_server_capabilities", timeout=30) as answer:
            self.model = json.loads(answer.read())["supported_models"][0]["model_name"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def start(models, tmp_path_factory):
    """A function that starts a server of a model. What one compiles, 1 to 5 minutes for each model,
    is kept for the next, as is what another run of the tests compiles."""
    compiled, started = REPOSITORY / "build" / "tinker-compiled", []

    def started_server(name, **options):
        made = Server(models[name], tmp_path_factory.mktemp(name), compiled, **options)
        started.append(made)
        return made.start()

    yield started_server
    for each in started:
        each.kill()


@pytest.fixture(scope="module")
def llama(request):
    return request.getfixturevalue("start")("llama") if PYTHON else Remote()


@pytest.fixture(scope="module")
def qwen3(start):
    return start("qwen3")


def node(server, *, model=None, r=RANK, rate=4e-3, **engine):
    table = {"name": "tinker", "url": server.url, "tokenizer": server.model, "timeout_s": 600.0}
    made = {"model": model or server.model, "learning_rate": rate, "lora": {"r": r}}
    return made | {"engine": table | engine}


def recipe(nodes, **changes):
    tree = {
        "name": "real",
        "rounds": 2,
        "threads": 1,
        "problems_per_round": 4,
        "group_size": 8,
        "checkpoint_every": 2,
        "task": {"name": "digits", "reward": "hash"},
        "objective": {"method": "lws", "weight": "likelihood"},
        "sampling": {"max_new_tokens": 8, "max_total_tokens": 32},
        "evaluation": {"every": 0, "problems": 2, "out_of_distribution": 0},
        "node": nodes,
    }
    return from_tree(tree | changes)


def sevens(completions, **columns):
    """Rewards the digit 7."""
    return [float("7" in text) for text in completions]


@needs_servers
def test_two_unlike_models_behind_two_servers_learn_from_each_other(llama, qwen3, tmp_path):
    servers = {"llama": llama, "qwen3": qwen3}
    config = recipe({name: node(each) for name, each in servers.items()}, rounds=10)
    run(config, tmp_path / "run", rewards=[sevens])
    for name in servers:
        came = lines(tmp_path / "run", name)
        reward = [line["own_reward_mean"] for line in came]
        print(name, "reward", " ".join(f"{x:.2f}" for x in reward))
        assert len(came) == 10
        assert np.mean(reward[-3:]) > reward[0] + 0.3
        (other,) = {"llama", "qwen3"} - {name}
        assert any(line["sources"][other]["rows_trained"] for line in came)


# The numbers: its learner beside the local one, on the server's own adapter.


def batch_of(reader):
    """Return 4 groups of 8 random completions of unlike lengths; half are another author's."""
    generator, groups = np.random.default_rng(0), []
    for at in range(4):
        problem, rows = Problem(f"p{at}", f"{generator.integers(100, 999)}+{at}=", ""), []
        for index in range(8):
            size, author = generator.integers(3, 20), ("me", "other")[index % 2]
            token_T = generator.integers(3, reader.vocabulary, size).astype(np.int32)
            rows.append(Completion(problem.id, author, index, token_T, None, "length"))
        rewards = [1.0, 0.0, *map(float, generator.integers(0, 2, 6))]
        groups.append(group(problem, rows, rewards, reader))
    return pack(groups)


def local_twin(model, archive, folder):
    """Return a local learner on the adapter in ``archive``, with Adam as the server's."""
    from peft import PeftModel  # here, as it takes seconds of every process that collects

    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (weights,) = folder.rglob("adapter_model.safetensors")
    with safe_open(weights, "np") as found:
        targets = sorted({key.split(".lora_")[0].rsplit(".", 1)[1] for key in found.keys()})  # noqa: SIM118
    described = weights.with_name("adapter_config.json")
    # SkyRL names no modules, and peft would then load two kinds of them.
    changes = {"target_modules": targets, "task_type": "CAUSAL_LM"}
    described.write_text(json.dumps(json.loads(described.read_text()) | changes))
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    network = PeftModel.from_pretrained(base, weights.parent, is_trainable=True).base_model.model
    parameters = [each for each in network.parameters() if each.requires_grad]
    adam = torch.optim.Adam(parameters, lr=RATE, eps=EPS)
    policy = LanguageModel(network, load_tokenizer(model))
    return Learner("me", policy, LWS, adam, 1.0, float("inf"), 4096)


def session_on(server, folder, saved=""):
    session = TinkerSession(TinkerOptions(url=server.url), server.model, folder)
    session.open(RANK, 1, saved, (3, 4))
    return session


@needs_servers
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")  # peft asks for it
def test_three_steps_are_those_of_the_local_learner(llama, tmp_path):
    session = session_on(llama, tmp_path)
    reader = Reader.of(llama.model)
    rate = LearningRate(RATE, "constant", 0, 3)
    adam = {"beta1": 0.9, "beta2": 0.999, "eps": EPS / 32}
    remote = RemoteLearner("me", reader, LWS, session, rate, adam, rows=32, longest=24)
    batch, archive = batch_of(reader), session.save("start")["weights"]
    rows = list(zip(batch.prompts, batch.tokens, strict=True))
    _, _, model_id, _, name = archive.split("/")
    kept = llama.folder / "checkpoints" / model_id / "sampler_weights" / f"{name}.tar.gz"
    local = local_twin(llama.model, kept, tmp_path / "adapter")

    def read():
        with torch.no_grad():
            here = local.policy.logp(batch.prompts, batch.tokens, temperature=1.0).numpy()
        there = session.logp(rows)
        own = [p_T[: len(tokens)] for p_T, tokens in zip(here, batch.tokens, strict=True)]
        return np.concatenate(own), np.concatenate(there)

    (here, there) = before = read()
    assert np.abs(here - there).max() < 1e-4
    for step in range(3):
        _, gradient = local.score_and_gradient(batch)
        local.step(gradient)
        report = remote.learn(batch, lambda *_: None, round=step)
        after = read()
        mine, theirs = after[0] - before[0], after[1] - before[1]
        cosine = mine @ theirs / np.linalg.norm(mine) / np.linalg.norm(theirs)
        norm = report.gradient_norm * 32  # SkyRL takes the mean over the rows that are sent
        print(
            f"step {step}: gradient norm here {gradient.norm:.6f}, there {norm:.6f}; changes of "
            f"{len(mine)} ln p: cosine {cosine:.6f}, max apart {np.abs(mine - theirs).max():.1e}"
        )
        assert norm == pytest.approx(gradient.norm, rel=1e-4)
        assert report.loss == pytest.approx(gradient.loss, abs=1e-5)
        assert cosine > 0.99999
        assert np.abs(mine - theirs).max() < 1e-3 < np.abs(mine).max()
        before = after


# A run that is killed.

RUN = """
import json, sys
from pathlib import Path
from potluck.config import from_tree
from potluck.launch.in_process import run
run(from_tree(json.loads(sys.argv[1])), Path(sys.argv[2]), display=None)
"""


def test_a_run_that_is_killed_goes_on_with_the_step_that_it_would_have_made(llama, tmp_path):
    tree = as_tree(recipe({"llama": node(llama)}, rounds=4))
    run(tree, tmp_path / "whole", display=None)
    command = [sys.executable, "-c", RUN, json.dumps(tree), str(tmp_path / "killed")]
    metrics = tmp_path / "killed" / "llama" / "metrics.jsonl"
    with subprocess.Popen(command) as child:
        while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
            assert child.poll() is None
            time.sleep(0.05)
        child.kill()
    run(tree, tmp_path / "killed", resume=True, display=None)
    whole, killed = (lines(tmp_path / name, "llama") for name in ("whole", "killed"))
    assert [line["round"] for line in killed] == [0, 1, 2, 3]
    for one, other in zip(whole, killed, strict=True):
        for key in ("own_reward_mean", "gradient_norm", "loss", "rows_trained"):
            assert one[key] == pytest.approx(other[key], rel=1e-3, abs=1e-5), key
    assert any(line["gradient_norm"] for line in killed[2:])
    # What is exported is what the server has, and not the base model.
    export(str(tmp_path / "killed" / "llama"), tmp_path / "adapter")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(llama.model) / file, tmp_path / "adapter")
    place = newest(str(tmp_path / "killed" / "llama"))
    session, ids = session_on(llama, tmp_path, served(Path(place))["state"]), np.arange(3, 9)
    (there,) = session.logp([(ids[:2], ids[2:])])
    here = (LanguageModel.load(str(each)) for each in (tmp_path / "adapter", llama.model))
    exported, base = (each.logp([ids[:2]], [ids[2:]], temperature=1.0)[0] for each in here)
    assert np.abs(exported.detach().numpy() - there).max() < 1e-4
    assert np.abs(base.detach().numpy() - there).max() > 1e-2


# Faults: one line each, within the timeout.


def told(nodes, folder, **options):
    """Return the one line with which a run ends, and the seconds that it took."""
    start, changes = time.monotonic(), options.pop("changes", {})
    with pytest.raises(PotluckError) as caught:
        run(recipe(nodes, **changes), folder, **{"display": None, **options})
    print(f"{time.monotonic() - start:.0f} s: {caught.value}")
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Between(BaseHTTPRequestHandler):
    """What stands before a server, and answers one of its calls by itself."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        at, body = self.server, self.rfile.read(int(self.headers.get("content-length", 0)))
        at.keys.add(self.headers["x-api-key"])
        if at.behind and not self.path.endswith(at.call):
            kind = {"content-type": self.headers.get("content-type", "application/json")}
            asked = urllib.request.Request(at.behind + self.path, body or None, kind)
            try:
                answer = urllib.request.urlopen(asked, timeout=60)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                self.reply(answer.status, answer.read(), answer.headers["content-type"])
        else:
            at.act(self)

    do_GET = do_POST

    def reply(self, status, body=b"{}", kind="application/json", **headers):
        self.send_response(status)
        sizes = {"content-type": kind, "content-length": str(len(body))}
        for name, value in {**sizes, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_): ...


@pytest.fixture
def between():
    """A function that starts one; it has a url, the keys that came, and an event of its end."""
    started = []

    def start_between(behind="", call="", act=lambda at: at.reply(404)):
        made = ThreadingHTTPServer(("127.0.0.1", 0), Between)
        made.daemon_threads = True
        made.behind, made.call, made.act, made.keys, made.over = behind, call, act, set(), Event()
        made.url = f"http://127.0.0.1:{made.server_port}"
        Thread(target=made.serve_forever, daemon=True).start()
        started.append(made)
        return made

    yield start_between
    for each in started:
        each.over.set()
        each.shutdown()
        each.server_close()


def test_no_server_and_another_server_are_named(llama, between, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{free.getsockname()[1]}"
        said = told({"a": node(llama, url=nowhere, timeout_s=TIMEOUT_S)}, tmp_path / "a")
    assert nowhere in said
    assert "gone" in said
    foreign = between()
    said = told({"a": node(llama, url=foreign.url, timeout_s=TIMEOUT_S)}, tmp_path / "b")
    assert foreign.url in said


def test_a_key_of_another_kind_is_named(llama, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "abc")
    place = f"SOME_KEY={llama.url.removeprefix('http://')}"
    nodes = {"a": node(llama, api_key_variable="SOME_KEY", timeout_s=TIMEOUT_S)}
    assert "api_key_variable" in told(nodes, tmp_path / "a", allow_keys=[place])


def test_a_rank_above_the_servers_is_named(llama, tmp_path):
    assert "lora" in told({"a": node(llama, r=64)}, tmp_path / "a")


def test_a_model_that_the_server_has_not_is_named(llama, tmp_path):
    said = told({"a": node(llama, model="Qwen/Qwen3-8B")}, tmp_path / "a")
    assert "no model 'Qwen/Qwen3-8B'" in said
    assert llama.model in said


def test_ids_beyond_the_servers_vocabulary_end_within_the_timeout(qwen3, models, tmp_path):
    """The tokenizer is that of the other model: its letters are no ids of this one."""
    rows = [{"question": f"{a}+{b}=", "answer": "1"} for a in "wxyz" for b in "wxyz"]
    (tmp_path / "letters.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {"name": "jsonl", "path": str(tmp_path / "letters.jsonl"), "tags": False, "held_out": 2}
    nodes = {"a": node(qwen3, tokenizer=models["llama"], timeout_s=TIMEOUT_S)}
    assert "vocabulary" in told(nodes, tmp_path / "a", changes={"task": task})


@needs_servers
def test_a_server_without_room_for_an_adapter_is_named(start, tmp_path):
    full = start("llama", adapters=2)
    taken = [session_on(full, tmp_path)]
    assert "for 5 minutes" in told({"a": node(full), "b": node(full)}, tmp_path / "a")
    assert taken


class At(Listener):
    """Does something once, when a round is done."""

    def __init__(self, act, round=0):
        self.act, self.round = act, round

    def round_done(self, node, report):
        if report.round == self.round:
            self.act()


@needs_servers
def test_a_server_that_hangs_or_is_gone_is_named_and_a_resumed_run_goes_on(start, tmp_path):
    server, folder = start("llama"), tmp_path / "run"
    run(recipe({"a": node(server)}, rounds=1), tmp_path / "compiled", display=None)

    def said(act, round):
        short = recipe({"a": node(server, timeout_s=TIMEOUT_S)}, rounds=6)
        start = time.monotonic()
        with pytest.raises(PotluckError) as caught:
            run(short, folder, resume=folder.exists(), display=At(act, round))
        print(f"{time.monotonic() - start:.0f} s: {caught.value}")
        return str(caught.value)

    assert "though the server is there" in said(lambda: server.signal_engine(signal.SIGSTOP), 1)
    server.signal_engine(signal.SIGCONT)
    assert "the server is gone" in said(server.kill, 3)
    server.start()
    run(recipe({"a": node(server)}, rounds=6), folder, resume=True, display=None)
    assert [line["round"] for line in lines(folder, "a")] == [*range(6)]


@needs_servers
def test_a_server_that_was_restarted_and_forgot_the_run_is_named(start, tmp_path):
    server = start("llama")
    nodes, changes = {"a": node(server)}, {"rounds": 4}
    said = told(nodes, tmp_path / "run", changes=changes, display=At(server.forget, 2))
    assert "does the server still have what is asked for" in said
    said = told(nodes, tmp_path / "run", changes=changes, resume=True)
    assert "loading tinker://" in said
    assert "does the server still have what is asked for" in said


def away(at):
    at.reply(307, location=f"{at.server.elsewhere}/login")


def cut(at):
    at.send_response(200)
    at.send_header("content-length", "1000")
    at.end_headers()
    at.wfile.write(b'{"future_id": ')
    at.close_connection = True


def hang(at):
    at.server.over.wait()


def status(number):
    return lambda at: at.reply(number, b'{"detail": "no"}')


def page(at):
    at.reply(200, b"<html>Sign in</html>", "text/html")


BEFORE_IT = [
    ("config", away, "redirects are not followed"),
    ("asample", away, "redirects are not followed"),
    ("config", status(401), "name the variable that holds its key in api_key_variable"),
    ("create_model", status(403), "may this key use this model"),
    ("create_session", page, "that of such a server"),
    ("forward_backward", status(422), "its version may not know the loss"),
    ("asample", status(500), "sampling: no answer within"),
    ("asample", cut, "sampling: no answer within"),
    ("optim_step", hang, "optim_step: no answer within"),
]


@pytest.mark.parametrize("call, act, said", BEFORE_IT)
def test_what_stands_before_a_server_and_fails_is_named(
    llama, between, tmp_path, monkeypatch, call, act, said
):
    monkeypatch.setenv("SOME_KEY", "tml-secret")
    place, elsewhere = between(llama.url, call, act), between()
    place.elsewhere = elsewhere.url
    allowed = [f"SOME_KEY={place.url.removeprefix('http://')}"]
    server = {"url": place.url, "api_key_variable": "SOME_KEY", "timeout_s": TIMEOUT_S}
    found = told({"a": node(llama, **server)}, tmp_path / "a", allow_keys=allowed)
    assert said in found
    assert place.url in found
    assert "tml-secret" not in found
    assert place.keys >= {"tml-secret"}
    assert not elsewhere.keys
    assert (elsewhere.url in found) == (act is away)
