"""A run of two nodes, one of them behind the Tinker API: by a fake client."""

import gc
import io
import json
import logging
import os
import re
import shutil
import sys
import tarfile
import traceback
from asyncio import CancelledError
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import ModuleType, SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import tiny
from launch.runs import crash
from potluck.builder.checks import require_engines
from potluck.builder.nodes import make_remote
from potluck.builder.plan import check, plan_cost
from potluck.cli.base import app
from potluck.config import ConfigError
from potluck.files import unlike_its_sum
from potluck.launch.in_process import run
from potluck.model import LanguageModel, ModelError
from potluck.model.loading import load_tokenizer
from potluck.node.storage import checkpoint
from potluck.node.storage.export import export
from potluck.rollout import tinker
from potluck.rollout.base import EngineSettings, GreedySampler, RolloutError, RolloutRequest
from potluck.rollout.texts.base import Books
from potluck.types import PotluckError, Problem, RunFolderError
from stand_in_tinker import MODEL, FakeTinker


def lines(folder, name="metrics"):
    text = (folder / "big" / f"{name}.jsonl").read_text()
    told = map(json.loads, text.splitlines())
    return [{k: v for k, v in line.items() if k != "seconds"} for line in told]


def spent(folder):
    file = folder / "big/cost.json"
    return json.loads(file.read_text())["usd"] if file.exists() else 0.0


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory):
    """A run of two rounds: its recipe and folder, its server, and what it told its optimiser."""
    server, told = FakeTinker(), []
    adam = server.types.AdamParams
    server.types.AdamParams = lambda **given: told.append(given) or adam(**given)
    big = {"lr_schedule": "linear", "adam_betas": [0.5, 0.25], "gradient_clip_norm": 3.0}
    config = recipe((), big, checkpoint_every=1)
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tinker, "library", lambda: server)
        assert run(config, folder, display=None).rounds == 2
    return SimpleNamespace(config=config, folder=folder, server=server, told=told)


def test_a_node_behind_a_server_and_one_with_weights_make_a_run(whole):
    assert [line["updates"] for line in lines(whole.folder)] == [1, 1]
    assert all(line["gradient_norm"] > 0 for line in lines(whole.folder))
    assert {*lines(whole.folder)[0]["sources"]} == {"big", "small"}
    (evaluation,) = lines(whole.folder, "evaluation")
    assert evaluation["problems"] == 2
    booked = json.loads((whole.folder / "big/cost.json").read_text())
    assert whole.server.usd <= booked["usd"] < 2 * whole.server.usd
    assert booked["booked"] == 0
    assert len({*whole.server.seeds}) == len(whole.server.seeds) > 1  # or it writes them again
    # The keys of the node have reached the server.
    rates = [each.pop("learning_rate") for each in whole.told]
    assert rates == [1e-3, 1e-2, 5e-3]
    assert whole.told == [{}, *[{"beta1": 0.5, "beta2": 0.25, "grad_clip_norm": 3.0}] * 2]
    gc.collect()  # a session that stays would tell its server for ever that it lives
    assert whole.server.closed == 1


def test_a_warmup_reaches_the_learner(server, recipe, tmp_path):
    made = make_remote(recipe((), {"warmup_updates": 7}), "big", tmp_path, 0)
    assert made.learning_rate.warmup == 7


def test_a_killed_run_goes_on_from_the_servers_state_with_the_same_numbers(
    server, recipe, whole, tmp_path
):
    folder, config = tmp_path / "run", whole.config
    crash(config, folder, 1)
    server.calls.clear()
    run(config, folder, display=None, resume=True)
    assert lines(folder) == lines(whole.folder)
    assert unlike_its_sum(folder / "big/checkpoints/000002") is None
    paid = spent(folder)
    assert paid > spent(whole.folder)
    # Behind the state that is loaded, its moments of Adam would move the probe.
    probe = ["forward", "forward_backward", "optim_step", "forward"]
    begin = ["connect", "capabilities", "create", *probe, "load_state"]
    assert server.calls[: len(begin)] == begin
    assert server.calls.count("load_state") == 1
    server.states.clear()
    with (folder / "big/cost.log").open("ab") as log:
        log.write(b"0123abcd {")  # as a crash cuts a line off; the probe is booked behind it
    again = msgspec.structs.replace(config, rounds=3)
    with pytest.raises(RolloutError, match="does the server still have"):
        run(again, folder, display=None, resume=True)
    assert Books(folder / "big", pytest.fail).spent.usd > paid


def api_error(kind, text, status=None, location=None):
    fields = {} if status is None else {"status_code": status}
    response = SimpleNamespace(headers={"location": location} if location else {})
    return type(kind, (Exception,), {**fields, "response": response})(text)


def caused(text, cause):
    error = ValueError(text)
    error.__cause__ = cause
    return error


ELSEWHERE = api_error("APIStatusError", "302", 302, "http://other.example/login")
FAULTS = [
    ("connect", api_error("TinkerError", "must start with the 'tml-' prefix"), "no key of this"),
    ("connect", ELSEWHERE, r"127.0.0.1:9 refuses .*leads to http://other.example/login\); redir"),
    ("forward", caused("Error retrieving result", ELSEWHERE), "forward .*http://other.example"),
    ("capabilities", api_error("NotFoundError", "a rank of adapters", 404), "is url complete"),
    ("create", ValueError("400: LoRA rank 64 must be between 1 and 8"), "lower r in the .* lora"),
    ("create", ValueError("frank/proton has no memory"), "its log says more"),
    ("optim_step", CancelledError(), "refuses optim_step .*CancelledError.*its log says more"),
    ("create", api_error("APIConnectionError", "Connection error."), "server is gone.*--resume"),
    ("forward", "hang", "forward: no answer within 600 seconds, and the server is gone"),
]


@pytest.mark.parametrize("what, fault, message", FAULTS)
def test_a_fault_is_a_line_with_the_way_out(server, opened, tmp_path, what, fault, message):
    server.faults[what] = fault
    with pytest.raises(RolloutError, match=message) as raised:
        opened()
    assert "\n" not in str(raised.value)
    books = Books(tmp_path, pytest.fail)
    assert server.usd <= books.spent.usd
    assert books.spent.booked == (what == "forward")  # it may be billed all the same


def test_the_key_is_in_no_error_and_the_library_follows_no_redirect(server, opened, monkeypatch):
    monkeypatch.setenv("SECRET", "tml-secret")
    server.faults["create"] = ValueError("no such key: tml-secret")
    with pytest.raises(RolloutError, match=r"no such key: \(the key\)") as raised:
        opened(api_key_variable="SECRET")
    assert server.keys == ["tml-secret"]
    assert "tml-secret" not in "".join(traceback.format_exception(raised.value))
    assert [client.follow_redirects for client in server.clients] == [False]


def test_a_proxy_before_a_server_that_does_not_answer_is_named(server, opened, monkeypatch):
    server.faults["create"] = api_error("APIConnectionError", "Connection error.")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    told = "asked through the proxy http://127.0.0.1:9 of http_proxy: add 127.0.0.1 to no_proxy"
    with pytest.raises(RolloutError, match=f"server is gone .*{told}"):
        opened()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(RolloutError, match="server is gone") as caught:
        opened()
    assert "proxy" not in str(caught.value)


def test_a_server_that_does_not_answer_is_told_from_one_that_is_gone(server, opened, monkeypatch):
    """As where an id is beyond the vocabulary of its model."""
    asked, ends = [], Event()
    server.faults["forward"] = "hang"
    monkeypatch.setattr(tinker, "urlopen", lambda url, timeout: asked.append(url) or io.BytesIO())
    with pytest.raises(RolloutError, match=r"server is there: raise timeout_s, or .*vocabulary"):
        opened()
    assert asked == ["http://127.0.0.1:9/api/v1/healthz"]
    monkeypatch.setattr(tinker, "urlopen", lambda url, timeout: ends.wait() and io.BytesIO())
    monkeypatch.setattr(tinker, "READY_S", 0.1)
    with pytest.raises(RolloutError, match=r"server is gone \(TimeoutError\('no whole answer'\)\)"):
        opened()
    ends.set()


def test_only_some_requests_are_under_way_at_once(server, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(tinker, "AT_ONCE", 2)
    server.faults["sample"] = "hang"
    with pytest.raises(RolloutError, match="sampling: no answer"):
        run(recipe(problems_per_round=8, plan="vertical"), tmp_path / "run", display=None)
    assert 1 <= server.calls.count("sample") <= 2, "of eight"


def test_what_is_under_way_does_not_count_as_spent(server, opened):
    """Each request is booked at the most that it can cost, and costs less."""
    made, server.longest = opened(budget_tokens=100), 1
    how = {"max_tokens": 200, "stop": [tiny.STOP], "seed": 0, "temperature": 1.0}
    asked = [made.ask(np.int32([5]), 1, **how) for _ in range(2)]
    assert made.books.spent.booked == 2
    for each in asked:
        made.written(each, lambda: None)
    assert made.books.spent.booked == 0
    assert made.books.spent.completion_tokens == 2


def short(sequences):
    return sequences[:-1]


def silent(sequences):
    sequences[0].logprobs = None
    return sequences


@pytest.mark.parametrize(
    "change, message",
    [
        (silent, "without log-probabilities; take another server"),
        (short, "wrote 1 completions of .*, not 2"),
    ],
)
def test_what_a_model_cannot_have_written_is_refused(server, opened, change, message):
    """All that it cannot have: tests/rollout/test_vllm.py, by the same function."""
    made, server.change = opened(), change
    writer = tinker.TinkerEngine(tiny.policy(), EngineSettings(6, 32), made)
    requests = [RolloutRequest(Problem("p", "1+2=", "3"), 2)]
    with pytest.raises(PotluckError, match=message):
        writer.generate(requests, GreedySampler(), author="big", progress=lambda *_: None)


def test_a_server_that_ignores_weights_or_has_another_model_is_refused(server, opened):
    for names in (("other",), (None, "other")):
        server.models = names
        with pytest.raises(RolloutError, match="no model 'maker/tiny'; name one of other"):
            opened()
    server.models, server.ignores_weights = (MODEL,), True
    with pytest.raises(RolloutError, match="ignores the weights of a loss"):
        opened()


@pytest.mark.parametrize(
    "tells",
    [
        lambda outputs: outputs[1:],
        lambda outputs: [{}, *outputs[1:]],
        lambda outputs: [
            {"logprobs": SimpleNamespace(data=o["logprobs"].data * 2)} for o in outputs
        ],
    ],
)
def test_log_probabilities_of_other_tokens_teach_nothing(server, opened, tells):
    server.tells = tells
    with pytest.raises(RolloutError, match="other log-probabilities than those of") as error:
        opened()
    assert "\n" not in str(error.value)


def test_a_budget_ends_the_run_before_more_is_asked(server, recipe, tmp_path):
    with pytest.raises(RolloutError, match=r"budget of 'big' is spent .* with --resume"):
        run(recipe({"budget_usd": 1e-3}, rounds=9), tmp_path / "run", display=None)
    assert server.usd <= spent(tmp_path / "run")
    assert server.calls.count("optim_step") < 9


def test_the_library_is_quiet_and_named_where_it_is_not_here(monkeypatch):
    monkeypatch.setitem(sys.modules, "tinker", ModuleType("tinker"))
    monkeypatch.setattr(logging.getLogger("tinker"), "level", logging.NOTSET)
    tinker.library()
    assert not logging.getLogger("tinker.lib").isEnabledFor(logging.ERROR)
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(RolloutError, match=r"needs its library .*pip install"):
        tinker.library()
    assert os.environ["TINKER_TELEMETRY"] == "0"


REFUSED = [
    ({"big": {"lora": None}}, r"\[node.big\] has no table lora: add lora"),
    ({"big": {"lora": {"r": 4, "alpha": 3.0}}}, r"\[node.big.lora\] sets more than r"),
    ({"big": {"device": "cpu"}}, r"\[node.big\] sets device"),
    ({"big": {"model": ""}}, r"\[node.big\] names no model"),
    ({"objective": {"updates_per_round": 2}}, "updates_per_round is above 1"),
    ({"objective": {"beta": 0.1}}, "beta is above 0"),
    ({"objective": {"weight": "typicality"}}, "needs entropies: set 'likelihood'"),
    ({"objective": {"trust": "nobody"}}, "trust is 'nobody'"),
    ({"sampling": {"stop_texts": ["\n"]}}, "stop_texts is set"),
    ({"swarm": {"open": True, "stranger_share": 0.5, "strangers_share": 0.5}}, "open is true"),
    ({"pace": "free", "group_size": 8}, "pace is 'free'"),
    ({"sampling": {"temperature": 0.5}}, "drop temperature, top_k and top_p"),
    ({"engine": {"budget_usd": 1, "usd_per_million_train": 0}}, "not every token has a price"),
]  # fmt: skip


@pytest.mark.parametrize("keys, message", REFUSED)
def test_what_a_server_cannot_do_is_refused_by_name(recipe, keys, message):
    with pytest.raises(ConfigError, match=message):
        recipe(**keys)


def test_authors_that_are_not_trusted_and_environments_are_refused(recipe, tmp_path):
    with pytest.raises(ConfigError, match="cannot bound what 'small' teaches"):
        require_engines(recipe(), tmp_path, ["big"], SimpleNamespace(environment=None))
    with pytest.raises(ConfigError, match="which plays no episodes"):
        require_engines(recipe(), tmp_path, ["big", "small"], SimpleNamespace(environment=object()))


def test_a_key_goes_to_no_host_without_consent(server, recipe, tmp_path, monkeypatch):
    """The library sends TINKER_API_KEY to any url."""
    monkeypatch.setenv("TINKER_API_KEY", "tml-own")
    with pytest.raises(ConfigError, match=r"--allow-key TINKER_API_KEY=127\.0\.0\.1:9"):
        run(recipe(), tmp_path / "run", display=None)
    assert not server.calls


def checked(config):
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(check(config))
    return console.export_text()


def test_check_tells_tokens_and_money(recipe, tmp_path):
    config = recipe()
    said, prompt = checked(config), plan_cost(config).inspection.prompts.mean
    # 8 completions of 6 tokens each; 16 rows are read, and trained on.
    prompts, read = round(8 * prompt), round(16 * (prompt + 6))
    assert f"big: its server reads {prompts} tokens of prompts and writes 48" in said
    usd = (prompts * 3 + 48 * 5 + 2 * read * 7) / 1e6
    assert f"at most {usd:.4f} USD a round, {2 * usd:.2f} in 2" in said
    assert "not asked yet" in said


def test_check_plans_a_model_that_is_on_its_server_only(recipe, monkeypatch):
    monkeypatch.setattr("potluck.builder.prepare.at_hand", lambda model: model != "far/away")
    config = recipe({"tokenizer": "far/away"})
    said = checked(config)
    assert "far/away: a server has it" in said
    assert "big: its server reads" in said
    assert "memory in GiB" in said
    alone = msgspec.structs.replace(config, node={"big": config.node["big"]})
    assert "memory in GiB" not in checked(alone)


@pytest.fixture
def archive(server, tmp_path):
    """The server's archive of an adapter: its host, and a folder inside it."""
    names = [
        f"base_model.model.model.layers.0.{x}.lora_{ab}.weight"
        for x in ("mlp.up_proj", "self_attn.q_proj")
        for ab in "AB"
    ]
    inner, place = tmp_path / "adapter", tmp_path / "a.tar.gz"
    inner.mkdir()
    weights = {name: torch.ones(2, 2, dtype=torch.bfloat16) for name in names}
    save_file(weights, inner / "adapter_model.safetensors")
    (inner / "adapter_config.json").write_text('{"r": 2, "target_modules": null}')
    with tarfile.open(place, "w:gz") as packed:
        packed.add(inner, "somewhere")

    class Archive(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(place.read_bytes())

        def log_message(self, *_): ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Archive) as host:
        Thread(target=host.serve_forever, daemon=True).start()
        server.archive = f"http://127.0.0.1:{host.server_port}/"
        yield place
        host.shutdown()


def test_an_export_brings_and_completes_the_adapter(server, whole, tmp_path, monkeypatch, archive):
    place = whole.folder / "big/checkpoints/000002"
    where = checkpoint.served(place)
    monkeypatch.setenv("TINKER_API_KEY", "tml-own")
    says = CliRunner().invoke(app, ["export", str(place), str(tmp_path / "out")])
    assert "--allow-key TINKER_API_KEY=127.0.0.1:9" in str(says.exception)
    assert not (tmp_path / "out").exists()
    monkeypatch.delenv("TINKER_API_KEY")
    chosen = ["--dtype", "float32", str(place), str(tmp_path / "whole")]
    assert "merge it into its base" in CliRunner().invoke(app, ["export", *chosen]).output
    export(str(place.parents[1]), tmp_path / "out")
    told = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert told["target_modules"] == ["q_proj", "up_proj"]
    assert told["base_model_name_or_path"] == MODEL
    files = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"adapter_model.safetensors", "README.md", "tokenizer.json"} < files
    assert "somewhere" not in files
    # As it came from the server, or as it was chosen.
    for folder, dtype in (("out", torch.bfloat16), ("whole", torch.float32)):
        found = load_file(tmp_path / folder / "adapter_model.safetensors")
        assert {each.dtype for each in found.values()} == {dtype}
    card = (tmp_path / "out/README.md").read_text()
    assert 'PeftModel.from_pretrained(base, "this/folder")' in card
    assert "potluck export this/folder merged/folder" in card
    assert load_tokenizer(str(tmp_path / "out")).get_vocab() == tiny.tokenizer().get_vocab()
    assert where["weights"] == "tinker://run-1/sampler_weights/round-000002"
    assert where["weights"] in server.calls
    server.faults[where["weights"]] = LookupError("Error code: 404")  # as SkyRL 0.3.0
    export(str(place.parents[1]), tmp_path / "by-name")
    assert server.calls[-1] == "archive of run-1, round-000002"
    assert (tmp_path / "by-name/adapter_model.safetensors").is_file()
    with pytest.raises(ModelError, match="are on a server; `potluck export"):
        LanguageModel.load(str(place))


def test_what_is_no_adapter_of_it_is_not_exported(server, whole, tmp_path, archive, monkeypatch):
    run_folder = shutil.copytree(whole.folder, tmp_path / "run")
    node, out, address = str(run_folder / "big"), tmp_path / "out", server.archive
    whole = archive.read_bytes()

    def refused():
        with pytest.raises(RunFolderError) as error:
            export(node, out)
        assert not out.exists()
        assert not out.with_name("out.part").exists()
        return str(error.value)

    server.archive = archive.as_uri()
    assert f"its address is {archive.as_uri()}, and not one of a server" in refused()
    server.archive = address
    archive.write_bytes(whole[:200])
    assert "no adapter comes from tinker://" in refused()
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(__file__, "config.json")
    assert "no adapter comes from tinker://" in refused()
    # Of a path that is none of the service's, the run and the name are told all the same.
    served = run_folder / "big/checkpoints/000002/served.json"
    served.write_text(json.dumps({"state": "", "weights": "tinker://run-7/a/b/c"}))
    server.faults["tinker://run-7/a/b/c"] = LookupError("404")
    assert "no adapter comes from tinker://" in refused()
    assert server.calls[-1] == "archive of run-7, c"
    monkeypatch.setattr("potluck.node.storage.export.save_file", full)
    archive.write_bytes(whole)
    assert re.search("cannot write .*No space left.* make room", refused())


def full(*_):
    raise OSError(28, "No space left on device")
