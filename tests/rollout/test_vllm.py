"""Writing through a server: the contract of an engine, and what a server can do wrong."""

import itertools
import json
import re
import socket
import threading
import time
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch
from httpx2 import AsyncHTTPTransport, ConnectTimeout

import tiny
from episodes import Here
from potluck.episode import acted, turns_in
from potluck.model import LanguageModel
from potluck.model.loading import weights_digest
from potluck.model.lora import add_adapter
from potluck.rollout.base import GreedySampler, RandomSampler, RolloutError, RolloutRequest
from potluck.rollout.hf import HFEngine
from potluck.rollout.options import VllmOptions
from potluck.rollout.server import Address, run_loop
from potluck.rollout.settings import EngineSettings
from potluck.rollout.vllm import client as line_module
from potluck.rollout.vllm import engine as engine_module
from potluck.rollout.vllm.client import VllmClient
from potluck.rollout.vllm.engine import require_server
from potluck.rollout.vllm.response import ServerRequest, read_response, require_ours
from potluck.types import Problem, Sampling
from stand_in_server import Refused, stand_in

PROBLEMS = [Problem(f"p{i}", "1+2=3+4=5+6="[: 2 + 3 * i], "?") for i in range(4)]
"""Prompts of four lengths."""


def policy(seed=0, sharpness=5.0):
    """Without ids beyond the tokenizer's: a server writes them as it writes any other."""
    network = tiny.policy(seed, sharpness=sharpness).network
    network.resize_token_embeddings(tiny.VOCABULARY, mean_resizing=False)
    return LanguageModel(network, tiny.tokenizer())


def saved(made, folder):
    made.network.save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(policy(), tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def server(folder):
    with stand_in(folder) as server:
        yield server


@pytest.fixture
def engine_of(server, tmp_path):
    """An engine of the server, which started with weights that are not the engine's."""

    def make(made=None, *, most=12, room=60, adapter="", environment=None, **options):
        settings = EngineSettings(
            most, room, node=tmp_path.name, folder=tmp_path.parent, adapter=bool(adapter),
            environment=environment, notify=print,
        )  # fmt: skip
        given = VllmOptions(url=server.url, model=adapter or "tiny", **options)
        return given.build(made or policy(seed=1), settings)

    return make


def changed(engine, **options):
    return replace(engine, options=msgspec.structs.replace(engine.options, **options))


def sampled(seed=0, temperature=1.0, top_k=0, top_p=1.0):
    return RandomSampler(torch.Generator().manual_seed(seed), Sampling(temperature, top_k, top_p))


def write(engine, sampler=None, requests=None, progress=lambda done, total: None):
    requests = requests or [RolloutRequest(problem, 3) for problem in PROBLEMS]
    return engine.generate(requests, sampler or sampled(), author="me", progress=progress)


def greedy(engine, progress=lambda done, total: None):
    """One each: vLLM refuses more, as they would be the same."""
    requests = [RolloutRequest(problem, 1) for problem in PROBLEMS]
    return write(engine, GreedySampler(), requests, progress)


def change(made):
    with torch.no_grad():
        made.network.lm_head.weight.mul_(-1)


def forward(made, completion, temperature=1.0):
    """logp_T straight from the network's logits."""
    prompt = made.prompt(next(p for p in PROBLEMS if p.id == completion.problem_id))
    with torch.no_grad():
        logits = made.network(input_ids=torch.tensor([[*prompt, *completion.token_T]])).logits[0]
    every = torch.log_softmax(logits.float() / temperature, dim=1)[len(prompt) - 1 : -1]
    return every.gather(1, torch.tensor(completion.token_T).long()[:, None])[:, 0].numpy()


@pytest.mark.parametrize(
    "mode, sampler",
    [
        ("raw_logprobs", {}),
        ("raw_logprobs", {"top_k": 3}),
        ("raw_logprobs", {"top_p": 0.5}),
        ("processed_logprobs", {}),
        ("processed_logprobs", {"temperature": 0.7}),
        ("raw_logprobs", None),
        ("processed_logprobs", None),
    ],
)
def test_log_probabilities_are_those_of_a_forward_pass_with_the_weights_of_here(
    server, engine_of, mode, sampler
):
    server.mode, engine = mode, engine_of()
    written = write(engine, sampled(**sampler)) if sampler is not None else greedy(engine)
    assert len(written) == (4 if sampler is None else 12)
    temperature = (sampler or {}).get("temperature", 1.0)
    for c in written:
        np.testing.assert_allclose(c.logp_T, forward(engine.policy, c, temperature), atol=2e-5)


def test_both_engines_write_the_same_where_nothing_is_left_to_chance(engine_of):
    engine = engine_of()
    here = HFEngine(engine.policy, EngineSettings(12, 60))
    for ours, theirs in zip(greedy(here), greedy(engine), strict=True):
        assert ours.token_T.tolist() == theirs.token_T.tolist()
        assert (ours.problem_id, ours.index, ours.end) == (
            (theirs.problem_id, theirs.index, theirs.end)
        )
        np.testing.assert_allclose(ours.logp_T, theirs.logp_T, atol=1e-4)


def test_each_order_is_filled_in_its_order_with_indices_from_zero_and_counted(server, engine_of):
    requests = [RolloutRequest(PROBLEMS[at], count) for at, count in ((3, 2), (0, 5), (2, 1))]
    for concurrency in (1, 64):
        seen = []
        written = write(
            engine_of(concurrency=concurrency),
            requests=requests,
            progress=lambda *pair, seen=seen: seen.append(pair),
        )
        keys = [(c.problem_id, c.index) for c in written]
        assert keys == [(o.problem.id, i) for o in requests for i in range(o.count)]
        assert {c.author for c in written} == {"me"}
        assert seen[-1] == (8, 8)
        assert seen == sorted(seen)
    asked = len(server.seen)
    assert write(engine_of(), requests=[RolloutRequest(PROBLEMS[0], 0)]) == []
    assert len(server.seen) == asked


def test_the_same_seed_writes_the_same_another_does_not_and_no_two_requests_share_one(
    server, engine_of
):
    engine = engine_of(policy(sharpness=1))
    assert write(engine, sampled(1)) == write(engine, sampled(1)) != write(engine, sampled(2))
    sampler = sampled(1)
    assert write(engine, sampler) != write(engine, sampler)
    # The first two writings and the first of the last two began with one seed.
    seeds = [body["seed"] for body in server.asked()]
    assert len(set(seeds)) == len(seeds) - 2 * len(PROBLEMS)


def test_a_prompt_and_its_completion_have_the_room_of_the_recipe_and_of_the_model(
    server, engine_of
):
    for most, room in ((1000, 1000), (12, 15)):
        server.seen.clear()
        write(engine_of(most=most, room=room))
        asked = [(len(body["prompt"]), body["max_tokens"]) for body in server.asked()]
        # The model has 64 positions.
        assert asked == [(prompt, min(most, min(room, 64) - prompt)) for prompt, _ in asked]


def test_what_cannot_be_written_is_refused_before_anything_is_asked(server, engine_of):
    with pytest.raises(RolloutError, match=r"'p3' has 12 tokens, which leaves no room below"):
        write(engine_of(room=12))
    with pytest.raises(RolloutError, match=r"temperature 0.7, top_k 3 and top_p 1; change"):
        write(engine_of(), sampled(temperature=0.7, top_k=3))
    with pytest.raises(
        RolloutError, match="cannot draw by function; it can by RandomSampler and GreedySampler"
    ):
        write(engine_of(), lambda logits: None)
    assert server.seen == []


def test_nothing_is_left_to_the_servers_defaults(server, engine_of):
    write(engine_of(), sampled(top_k=3, top_p=0.9))
    for body in server.asked():
        settings = {"temperature": 1.0, "top_k": 3, "top_p": 0.9, "min_p": 0.0}
        settings |= {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
        assert settings.items() <= body.items()
        assert body["stop_token_ids"] == [tiny.STOP]
        assert body["return_token_ids"]


def test_the_server_reloads_when_the_weights_have_changed_and_only_then(
    server, engine_of, tmp_path
):
    engine = engine_of()
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "notes").mkdir()
    for _ in range(2):
        first = write(engine)
    assert server.paths().count("/collective_rpc") == 1
    change(engine.policy)
    for _ in range(2):
        second = write(engine)
    assert server.paths().count("/collective_rpc") == 2
    assert server.paths().count("/reset_prefix_cache") == 2
    assert first != second
    for c in second:
        np.testing.assert_allclose(c.logp_T, forward(engine.policy, c), atol=2e-5)
    # No prompt of the old weights is gone on with, and their files are gone; nobody else's are.
    assert len({body["cache_salt"] for body in server.asked()}) == 2
    here = {path.name for path in (tmp_path / "served").iterdir()}
    assert here == {weights_digest(engine.policy.network, trained=True), "notes"}


def digest(made):
    return weights_digest(made.network, trained=True)


def test_every_single_weight_counts_for_whether_they_have_changed():
    made = policy()
    before = digest(made)
    assert digest(policy()) == before != digest(policy(seed=1))
    for parameter in made.network.parameters():
        with torch.no_grad():
            last = parameter.view(-1)[-1]
            kept = last.clone()
            last.copy_(torch.nextafter(kept, torch.tensor(torch.inf)))
            assert digest(made) != before
            last.copy_(kept)
    assert digest(made) == before


def test_stale_weights_are_noticed(server, engine_of):
    engine = engine_of(policy())  # those that the server has begun with
    write(engine)
    server.stale = True
    change(engine.policy)
    with pytest.raises(RolloutError, match=r"differ from this model's by \d.* has other weights"):
        write(engine)


def other_mode(made, completion, temperature=1.0, top_k=0, top_p=1.0):
    """logp_T as a server of the wrong mode tells it, by hand."""
    prompt = made.prompt(next(p for p in PROBLEMS if p.id == completion.problem_id))
    with torch.no_grad():
        logits = made.network(input_ids=torch.tensor([[*prompt, *completion.token_T]])).logits[0]
    p_TV = logits[len(prompt) - 1 : -1].double().softmax(dim=1)
    for p_V in p_TV if temperature == 1 else ():
        order = p_V.argsort(descending=True)
        kept = order[: top_k or len(p_V)]
        kept = kept[: int((p_V[kept].cumsum(0) / p_V[kept].sum() < top_p).sum()) + 1]
        p_V.copy_(torch.zeros_like(p_V).index_copy(0, kept, p_V[kept] / p_V[kept].sum()))
    return p_TV.log().gather(1, torch.tensor(completion.token_T).long()[:, None])[:, 0].numpy()


def checked(made, sampler, written, told):
    """Hold told log-probabilities against the model, as of a server of tolerance 0.1."""
    prompt_P, options = made.prompt(PROBLEMS[0]), VllmOptions(url="http://x", model="m")
    rows = [
        replace(c, logp_T=logp_T.astype(np.float32))
        for c, logp_T in zip(written, told, strict=True)
    ]
    return require_ours(made, sampler, prompt_P, rows, options)


@pytest.mark.parametrize("much, little, mode", [
    ({"temperature": 0.4}, {"temperature": 0.95}, "processed_logprobs"),
    ({"top_k": 2}, {"top_k": 30}, "raw_logprobs"),
    ({"top_p": 0.2}, {"top_p": 0.95}, "raw_logprobs"),
])  # fmt: skip
def test_the_wrong_mode_is_found_however_little_it_is_off_and_noise_is_not_taken_for_it(
    much, little, mode
):
    """The noise is as large as the difference of the modes here: 0.02 nats and more."""
    made, die = policy(seed=1, sharpness=2), np.random.default_rng(0)
    requests = [RolloutRequest(PROBLEMS[0], 8)]
    for options, found in ((much, ""), (little, r"those of another mode: \d.*e-0[78] nats .*")):
        sampler = sampled(**options)
        written = write(HFEngine(made, EngineSettings(12, 60)), sampler, requests)
        wrong = [other_mode(made, c, **options) for c in written]
        with pytest.raises(RolloutError, match=f"{found}--logprobs-mode {mode}"):
            checked(made, sampler, written, wrong)
    for _ in range(8):
        noise = [np.minimum(c.logp_T + die.laplace(0, 0.02, len(c.logp_T)), 0) for c in written]
        checked(made, sampler, written, noise)


def moved(change):
    """A twist: ``change`` of each log-probability."""

    def twist(answer):
        for choice in answer["choices"]:
            told = choice["logprobs"]
            told["token_logprobs"] = [change(logp) for logp in told["token_logprobs"]]
        return answer

    return twist


def test_how_far_the_server_may_be_off_is_the_recipes_to_say(server, engine_of):
    engine, server.twist = engine_of(), moved(lambda logp: logp - 0.05)
    write(engine)
    with pytest.raises(RolloutError, match=r"by 0\.05 nats a token, more than 0\.04"):
        write(changed(engine, tolerance=0.04))


def answer_of(*choices):
    return {"choices": [choice(index) | given for index, given in enumerate(choices)]}


def choice(index=0, tokens=(5, tiny.STOP), logps=None, finish="stop"):
    logps = [-1.0] * len(tokens) if logps is None else logps
    told = {"token_ids": [*tokens], "logprobs": {"token_logprobs": logps}}
    return {"index": index, "finish_reason": finish, **told}


LONG = [5] * 12
FAULTS = {
    "drops the stop token": (choice(tokens=[5]), "is no stop token; it must keep the stop token"),
    "a token too few": (choice(logps=[-1.0]), "with 2 tokens but 1 log-probabilities"),
    "none at all": (choice(tokens=[]), "with 0 tokens; 1 to 12"),
    "too many": (choice(tokens=[*LONG, 5]), "with 13 tokens; 1 to"),
    "cut for a long reason": (choice(tokens=[5], finish="\n" * 9_000), "after 1 of 12 tokens"),
    "cut short": (
        choice(tokens=[5], finish="length"),
        r"ended it \('length'\) after 1 of 12 .*--max",
    ),
    "foreign id": (choice(tokens=[5, 4242]), "token id 4242; the tokenizer has ids"),
    "negative id": (choice(tokens=[5, -1]), "token id -1; the tokenizer has ids be"),
    "on after the stop": (choice(tokens=[tiny.STOP, 5]), "with words after a stop token"),
    "giant id": (choice(tokens=[10**300]), "cannot be read .*token_ids"),
    "id as text": (choice(tokens=["5"]), "Expected `int`, got `str`"),
    "no ids": (choice() | {"token_ids": None}, "cannot be read .* need vLLM 0.10.2 or newer"),
    "no log-probabilities": (choice() | {"logprobs": None}, "cannot be read .*logprobs"),
    "NaN": (choice(logps=[float("nan")] * 2), "cannot be read"),
    "null": (choice(logps=[None] * 2), "cannot be read .*token_logprobs"),
    "ln 0": (choice(logps=[-9999.0] * 2), "with log-probability -9999.0"),
    "more than certain": (choice(logps=[0.1] * 2), "with log-probability 0.1"),
    "another prompt": (choice() | {"prompt_token_ids": [1, 2]}, "behind another prompt"),
}
NO_ANSWERS = {
    "one too few": (json.dumps(answer_of({})).encode(), "wrote 1 completions of 'p0', not 2"),
    "one twice": (json.dumps(answer_of({}, {"index": 0})).encode(), "each index is to come once"),
    "no JSON": (b"<html>", "cannot be read"),
    "no UTF-8": (b'{"choices": "\xff"}', "cannot be read"),
    "a tower": (b"[" * 50_000, "cannot be read"),
    "another thing": (b'{"error": "no"}', "cannot be read .*choices"),
}


def read(raw, count=1):
    made = policy()
    prompt_P = made.prompt(PROBLEMS[0])
    asked = ServerRequest(PROBLEMS[0], prompt_P, count, 12, {"prompt": prompt_P.tolist()})
    client = VllmClient(Address("http://x"))
    return read_response(raw, asked, client, policy=made, author="me")


@pytest.mark.parametrize("fault", [*FAULTS, *NO_ANSWERS])
def test_no_wrong_answer_is_taken(fault):
    raw, message = NO_ANSWERS.get(fault) or FAULTS[fault]
    raw = raw if isinstance(raw, bytes) else json.dumps({"choices": [raw]}).encode()
    with pytest.raises(RolloutError, match=message) as caught:
        read(raw, count=2 if fault.startswith("one ") else 1)
    said = str(caught.value)
    assert said.startswith("the server at http://x wrote ")
    assert "\n" not in said
    assert len(said) < 600


def test_an_endless_answer_is_not_read_to_its_end(server, engine_of):
    server.twist = lambda answer: b" " * 2**18
    with pytest.raises(RolloutError, match=r"with more than \d+ bytes"):
        write(engine_of(), requests=[RolloutRequest(PROBLEMS[0], 3)])


def test_a_rounding_above_certainty_is_none_and_a_stop_token_in_the_last_place_ends_it():
    """Whatever the server calls it: older versions of vLLM look at the length first."""
    last = choice(tokens=[*LONG[1:], tiny.STOP], logps=[1e-6] * 12, finish="length")
    (c,) = read(json.dumps({"choices": [last]}).encode())
    assert (c.end, c.logp_T.max()) == ("stop", 0)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(line_module, "LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(line_module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(engine_module, "TICK_S", 0.02)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_busy_or_stumbles_is_asked_again(server, engine_of):
    server.statuses = [503, 500, 500, 503, 429]
    assert len(write(engine_of(), requests=[RolloutRequest(PROBLEMS[0], 2)])) == 2
    assert server.paths()[:3] == ["/collective_rpc"] * 3


@pytest.mark.parametrize(
    "path, status, said, way_out",
    [
        ("/v1/load_lora_adapter", 404, "No adapter found for /a", r"name one that both see in \["),
        ("/v1/load_lora_adapter", 404, "Not Found", "must be switched on when it is started"),
        ("/v1/load_lora_adapter", 500, "LoRA rank 9 is greater than max_lora_rank 8", "-rank of"),
        ("/collective_rpc", 500, "Repo id must be in the form 'repo'", "does not see that folder"),
        ("/collective_rpc", 500, "Worker failed with error ''", "other sizes, and is broken now"),
        ("/collective_rpc", 500, "The size of tensor a (1) must match", "restart it with"),
        ("/collective_rpc", 500, "no such method", "too old to reload from a path"),
        ("/collective_rpc", 404, "Not Found", "start it with VLLM_SERVER_DEV_MODE=1"),
        ("/collective_rpc", 307, "", "redirects are not followed: set url to where it leads"),
        ("/collective_rpc", 401, "no", "name the variable that holds its key in api_key_variable"),
        ("/v1/completions", 400, "no", r"completions \(status 400 no\); see its log"),
        ("/sleep?level=2", 404, "Not Found", "start it with VLLM_SERVER_DEV_MODE=1"),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_a_refusal_names_its_cause_on_one_line_at_once(server, path, status, said, way_out):
    server.answer = lambda *_: refuse(status, said)
    with pytest.raises(RolloutError, match=way_out) as caught:
        ask(server.url, "POST", path)
    assert "\n" not in str(caught.value)
    assert len(server.seen) == (3 if status == 500 else 1)


def refuse(status, said):
    raise Refused(status, said)


def ask(url, *request):
    async def asked():
        async with VllmClient(Address(url)) as client:
            return await client.ask(*request)

    return run_loop(asked())


def test_a_server_that_never_answers_costs_no_more_than_the_time_given(server, engine_of):
    server.stalls, start = threading.Event(), time.monotonic()
    with pytest.raises(RolloutError, match=r"no answer within timeout_s = 0.3"):
        write(engine_of(timeout_s=0.3))
    assert time.monotonic() - start < 60  # for ever, if it waited for the answer
    server.stalls.set()


@pytest.mark.usefixtures("impatient")
def test_an_answer_that_breaks_off_is_asked_for_again(server, engine_of):
    engine = engine_of()
    write(engine)
    server.cuts = 2
    assert len(write(engine, requests=[RolloutRequest(PROBLEMS[0], 2)])) == 2
    # The second one to break off is that of the reload, and nothing is asked before one holds.
    assert len(server.asked()) == len(PROBLEMS) + 2
    assert server.paths().count("/collective_rpc") == 4


@pytest.mark.usefixtures("impatient")
def test_a_machine_that_does_not_answer_yet_is_asked_again(server, engine_of, monkeypatch):
    connect, tries = AsyncHTTPTransport.handle_async_request, itertools.count()

    async def slow(self, request):
        if next(tries) in (3, 4):
            raise ConnectTimeout("timed out")
        return await connect(self, request)

    monkeypatch.setattr(AsyncHTTPTransport, "handle_async_request", slow)
    engine = engine_of(concurrency=1)
    assert_all_ours(engine, write(engine))
    assert server.paths().count("/collective_rpc") == 3  # once more for each break
    tries = itertools.repeat(3)
    with pytest.raises(RolloutError, match=r"\(no connection within 10 s\); is it running"):
        write(engine_of(timeout_s=0.3))


def assert_all_ours(engine, written):
    assert [c.problem_id for c in written] == [p.id for p in PROBLEMS for _ in range(3)]
    for c in written:
        np.testing.assert_allclose(c.logp_T, forward(engine.policy, c), atol=5e-5)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("concurrency", [1, 64])
def test_a_server_that_is_started_anew_in_the_middle_gets_the_weights_again(
    server, engine_of, concurrency
):
    engine = engine_of(concurrency=concurrency)  # the server began with other weights
    server.restarts_after, server.drops = 2, 2
    assert_all_ours(engine, write(engine))
    assert server.restarted
    # What was answered before it ended is not asked for again.
    assert len(server.asked()) == {1: 2 + 1 + 1 + 2, 64: 4 + 2}[concurrency]
    change(engine.policy)
    assert_all_ours(engine, write(engine))


def test_a_server_that_was_started_anew_between_two_requests_is_found_by_its_last_answer(
    server, engine_of
):
    server.restarts_after = 2  # and no connection breaks
    with pytest.raises(RolloutError, match=r"differ from this model's by \d.* has other weights"):
        write(engine_of(concurrency=1))


@pytest.mark.usefixtures("impatient")
def test_every_answer_to_a_request_that_was_asked_twice_is_checked(server, engine_of):
    engine = engine_of(concurrency=1)

    def second_is_off(answer):
        asked = answer["choices"][0]["prompt_token_ids"]
        is_second = asked == engine.policy.prompt(PROBLEMS[1]).tolist()
        return moved(lambda logp: logp - 0.5)(answer) if is_second else answer

    server.twist = second_is_off
    write(engine)  # neither the first nor the last
    server.restarts_after, server.drops = 1, 1
    with pytest.raises(RolloutError, match=r"by 0\.5 nats a token"):
        write(engine)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("drops", [{"drops": 10**9}, {"statuses": [502] * 10**4}])
def test_a_server_that_stays_away_is_given_up_when_the_time_is_over(server, engine_of, drops):
    write(engine_of())
    server.restarts_after, server.drops = 0, 0
    for name, value in drops.items():
        setattr(server, name, value)
    with pytest.raises(RolloutError, match=r"does not do /(v1/completions|collective_rpc) \("):
        write(engine_of(timeout_s=0.3))


def begin(engine, seed=0):
    requests = [RolloutRequest(problem, 3) for problem in PROBLEMS]
    return engine.begin(requests, sampled(seed), author="me")


def no_progress(done, total):
    pass


def test_what_was_begun_is_of_the_weights_of_then_and_is_checked_against_them(server, engine_of):
    engine = engine_of(overlap=True, tolerance=1e-5)
    then = write(engine)
    writing = begin(engine)
    change(engine.policy)
    now = digest(engine.policy)
    assert writing.collect(no_progress) == then
    assert digest(engine.policy) == now
    assert engine.server_mismatch < 1e-5
    assert write(engine) != then


def test_nothing_is_begun_where_nothing_is_asked_for(server, engine_of):
    assert engine_of(overlap=True).begin([], sampled(), author="me") is None
    assert server.seen == []


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_started_anew_meanwhile_gets_the_weights_of_then(server, engine_of):
    engine = engine_of(overlap=True, tolerance=1e-5, concurrency=1)
    then = write(engine)
    server.restarts_after, server.drops = 2, 2
    writing = begin(engine)
    change(engine.policy)
    assert writing.collect(no_progress) == then
    assert server.restarted


def test_another_writing_waits_until_what_was_begun_is_there(server, engine_of):
    """An evaluation: it sends other weights, and takes nothing away."""
    server.stalls, seen = threading.Event(), []
    engine = engine_of(overlap=True, tolerance=1e-5)
    writing = begin(engine)
    change(engine.policy)

    def progress(done, total):
        seen.append(len(server.asked()))
        if seen.count(4) == 2:  # all that was begun is asked, and a tick later still no more
            server.stalls.set()

    greedy(engine.with_limits(max_new_tokens=12, max_total_tokens=60), progress)
    assert [body["temperature"] for body in server.asked()] == [1.0] * 4 + [0.0] * 4
    change(engine.policy)
    assert len(writing.collect(no_progress)) == 12


def test_an_answer_that_drips_is_late_too(server, engine_of):
    patient = engine_of()
    write(patient)  # on a busy machine that is not a matter of half a second
    engine = changed(patient, timeout_s=0.5)
    start = time.monotonic()
    server.drips_s = 0.2
    with pytest.raises(RolloutError, match=r"no answer within timeout_s = 0.5"):
        write(engine, requests=[RolloutRequest(PROBLEMS[0], 1)])
    assert time.monotonic() - start < 60  # minutes, were each byte given half a second
    server.drips_s = 0


def test_no_server_is_there():
    with socket.socket() as held:  # bound and not listening: whoever comes is refused
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(RolloutError, match=r"\(.*Refused.*\); is it running") as caught:
            run_loop(require_server(Address(url, timeout_s=0.2), "tiny", adapter=False, longest=60))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("begun", [True, False])
def test_what_is_outstanding_can_be_broken_off(server, engine_of, begun):
    server.stalls, start = threading.Event(), time.monotonic()
    engine = engine_of(concurrency=2, overlap=begun)

    def stop(done, total):
        if "/v1/completions" in server.paths():
            raise KeyboardInterrupt

    if begun:
        begin(engine).abandon()
    else:
        with pytest.raises(KeyboardInterrupt):
            write(engine, progress=stop)
    assert engine.weight_sync.writing.done()
    assert time.monotonic() - start < 60  # ten minutes, if it waited for the answers
    assert len(server.asked()) <= 3  # those that waited in the queue are never sent
    server.stalls.set()


@pytest.mark.usefixtures("impatient")
def test_progress_is_told_while_nothing_arrives_so_that_a_user_can_stop_it(server, engine_of):
    server.stalls, calls = threading.Event(), itertools.count()

    def progress(done, total):
        if next(calls) == 2:
            server.stalls.set()

    assert len(write(engine_of(), progress=progress)) == 12


def test_the_key_comes_from_the_variable_that_is_named_and_is_in_no_message(
    server, engine_of, monkeypatch
):
    server.key = "sesame-42"
    monkeypatch.setenv("POTLUCK_TEST_KEY", " sesame-42\n")
    write(engine_of(api_key_variable="POTLUCK_TEST_KEY"))
    monkeypatch.setenv("POTLUCK_TEST_KEY", "sesame-43")
    with pytest.raises(RolloutError, match="status 401 Unauthorized") as caught:
        write(engine_of(api_key_variable="POTLUCK_TEST_KEY"))
    assert "sesame" not in str(caught.value)
    monkeypatch.delenv("POTLUCK_TEST_KEY")
    with pytest.raises(RolloutError, match=r"'POTLUCK_TEST_KEY', which is not set"):
        write(engine_of(api_key_variable="POTLUCK_TEST_KEY"))


def test_no_proxy_is_asked_and_a_path_before_v1_is_kept(server, engine_of, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    engine = engine_of()
    write(changed(engine, url=server.url + "/v1", timeout_s=30.0))
    assert set(server.paths()) == {"/collective_rpc", "/reset_prefix_cache", "/v1/completions"}
    with pytest.raises(RolloutError):
        ask(server.url + "/deep/v1/", "GET", "/v1/models")
    assert server.paths()[-1] == "/deep/v1/models"


def test_a_server_that_sleeps_is_woken_in_two_steps_and_sent_its_weights_each_time(
    server, engine_of
):
    engine = engine_of(sleeps=True)
    for _ in range(2):
        for c in write(engine):
            np.testing.assert_allclose(c.logp_T, forward(engine.policy, c), atol=2e-5)
    steps = [path for path in server.paths() if path != "/v1/completions"]
    assert steps == 2 * [
        "/wake_up?tags=weights",
        "/collective_rpc",
        "/wake_up?tags=kv_cache",
        "/reset_prefix_cache",
        "/sleep?level=2",
    ]


@pytest.mark.parametrize("sleeps", [False, True])
def test_of_a_lora_node_the_server_gets_the_adapter_alone(
    server, engine_of, folder, tmp_path, sleeps
):
    made = policy()
    add_adapter(made.network, rank=2, alpha=64, dropout=0, targets=["q_proj", "v_proj"], seed=0)
    server.can_reload, engine = sleeps, engine_of(made, adapter="mine", sleeps=sleeps)
    first = write(engine)
    with torch.no_grad():
        for name, parameter in made.network.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(0))
    second = write(engine)
    assert first != second
    for c in second:
        np.testing.assert_allclose(c.logp_T, forward(made, c), atol=5e-5)
    assert server.paths().count("/v1/load_lora_adapter") == 2
    assert server.paths().count("/v1/unload_lora_adapter") == 2
    assert server.paths().count("/sleep?level=1") == (2 if sleeps else 0)
    (place,) = (tmp_path / "served").iterdir()
    assert not (place / "model.safetensors").exists()
    assert {body["model"] for body in server.asked()} == {"mine"}


def test_a_disk_that_is_full_is_one_line_and_leaves_nothing_half_done(
    server, engine_of, tmp_path, monkeypatch
):
    engine = engine_of()

    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr(engine.policy.tokenizer, "save_pretrained", full)
    with pytest.raises(RolloutError, match=r"cannot write the weights .* No space left .* folder"):
        write(engine)
    assert list((tmp_path / "served").iterdir()) == []
    monkeypatch.undo()
    assert len(write(engine)) == 12


def test_a_server_is_looked_at_before_a_run_begins(server):
    address = Address(server.url, 5.0)
    run_loop(require_server(address, "tiny", adapter=False, longest=64))
    run_loop(require_server(address, "not-yet", adapter=True, longest=64))
    with pytest.raises(RolloutError, match=r"serves 'tiny', not 'other'; set .* model to one"):
        run_loop(require_server(address, "other", adapter=False, longest=64))
    with pytest.raises(RolloutError, match=r"room for 64 tokens, but .* may have 65; raise its"):
        run_loop(require_server(address, "tiny", adapter=False, longest=65))
    server.twist = None
    with pytest.raises(RolloutError, match="does not do /v1/models"):
        run_loop(
            require_server(Address(server.url + "/nowhere"), "tiny", adapter=False, longest=64)
        )


@pytest.mark.usefixtures("impatient")
def test_at_most_so_many_problems_are_asked_for_at_once(server, engine_of):
    server.stalls, seen = threading.Event(), []

    def progress(done, total):
        seen.append(len(server.asked()))
        if seen.count(2) == 3:
            server.stalls.set()

    write(engine_of(concurrency=2), progress=progress)
    assert re.fullmatch(r"(0,)*(1,)*(2,)+.*", "".join(f"{n}," for n in seen))


@pytest.fixture
def player_of(engine_of):
    """An engine of episodes on the same server, with further stop tokens: turns of some tokens."""

    def make(environment, **options):
        made = policy(seed=1, sharpness=1)
        made = LanguageModel(made.network, made.tokenizer, stop=["a", "b", "c", "d", "e", "f"])
        return engine_of(made, most=24, environment=environment, **options)

    return make


def read_of(made, written, environment):
    """What was observed within each episode, by the game played again."""
    observed = []
    for c in written:
        turns = acted(turns_in(c.text), c.end)
        problem = next(p for p in PROBLEMS if p.id == c.problem_id)
        said = environment.replay(problem, turns).observations[: len(c.turns) - 1]
        places = np.cumsum(c.turns)[:-1].tolist()
        observed.append(tuple(zip(places, map(made.observed_ids, said), strict=True)))
    return observed


def test_an_episode_is_a_chain_of_requests_whose_prompts_are_all_that_was_read_and_sampled(
    server, player_of
):
    environment = Here(max_turns=4)
    engine = player_of(environment)
    written = write(engine)
    keys = [(c.problem_id, c.index) for c in written]
    assert keys == [(problem.id, index) for problem in PROBLEMS for index in range(3)]
    assert {"stop", "length", "turns"} >= {c.end for c in written} >= {"length", "turns"}
    assert len({len(c.turns) for c in written}) > 2
    prompts = [engine.policy.prompt(next(p for p in PROBLEMS if p.id == id)) for id, _ in keys]
    observed = read_of(engine.policy, written, environment)
    with torch.no_grad():
        logp_MT = engine.policy.logp(
            prompts, [c.token_T for c in written], temperature=1.0, observed=observed
        )
    for c, logp_T in zip(written, logp_MT.numpy(), strict=True):
        np.testing.assert_allclose(c.logp_T, logp_T[: len(c.token_T)], atol=2e-5)
    asked = server.asked()
    assert len(asked) == sum(len(c.turns) for c in written)
    assert len({body["seed"] for body in asked}) == len(asked)
    assert {body["n"] for body in asked} == {1}


class OnceTwoWait:
    """An event of a problem, for ``Here.holds``: it comes when two of its episodes wait for it."""

    def __init__(self, environment):
        self.environment, self.looks, self.most = environment, 0, 0

    def wait(self, seconds):
        self.looks += 1
        self.most = max(self.most, len(self.environment.opened[-1].waiting))
        time.sleep(0.001)
        return self.most > 1 or self.looks > 2000


def test_episodes_of_a_problem_that_end_at_one_look_are_taken_once(player_of):
    environment = Here(max_turns=1)
    environment.holds[PROBLEMS[0].id] = event = OnceTwoWait(environment)
    written = write(player_of(environment), requests=[RolloutRequest(PROBLEMS[0], 2)])
    assert [c.index for c in written] == [0, 1]
    assert event.most > 1


def test_both_engines_play_the_same_where_nothing_is_left_to_chance(player_of):
    engine = player_of(Here())
    here = HFEngine(engine.policy, EngineSettings(24, 60, environment=Here()))
    for ours, theirs in zip(greedy(here), greedy(engine), strict=True):
        assert ours.token_T.tolist() == theirs.token_T.tolist()
        same = ("problem_id", "index", "end", "turns", "observed", "text")
        assert [getattr(ours, name) for name in same] == [getattr(theirs, name) for name in same]


@pytest.mark.usefixtures("impatient")
def test_a_turn_whose_connection_breaks_is_asked_for_anew_with_the_weights(server, player_of):
    environment = Here()
    engine = player_of(environment, concurrency=1)
    server.restarts_after, server.drops = 9, 1
    written = write(engine)
    assert len(server.asked()) == sum(len(c.turns) for c in written) + 1
    assert server.paths().count("/collective_rpc") == 2
    assert engine.server_mismatch < 1e-4
    assert len(environment.opened) == 1


def test_a_server_with_other_weights_is_found_out_by_episodes_too(server, player_of):
    server.stale = True
    with pytest.raises(RolloutError, match="it has other weights"):
        write(player_of(Here()))


def test_a_failed_episode_is_left_out_of_a_servers_too(player_of):
    written = write(player_of(Here(fails={"p1": 1})))
    assert {c.problem_id for c in written} == {"p0", "p2", "p3"}
