"""A Tinker server and its client library in one object, over Potluck's own tiny models: no HTTP.

It trains all weights of the model. What it keeps (states, a bill) outlives a killed client.
"""

import copy
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Event
from types import SimpleNamespace

import numpy as np
import torch

import tiny

MODEL = "maker/tiny"
PRICES = {"prompt": 3.0, "completion": 5.0, "train": 7.0}
"""US dollars for a million tokens."""


@dataclass
class Datum:
    model_input: list
    loss_fn_inputs: dict


def done(value):
    future = Future()
    future.set_result(value)
    return future


class FakeTinker:
    """The library ``tinker``; what it makes are clients of one server."""

    __version__ = "0.22.7"

    def __init__(self):
        # "sum", "rows" (the mean of each row, then of rows) or "weights"
        self.reduces, self.ignores_weights, self.models = "sum", False, (MODEL,)
        self.states, self.calls, self.faults, self.seeds = {}, [], {}, []
        self.usd, self.made, self.keys, self.archive = 0.0, 0, [], ""
        # What a server that is not as it should makes of what it wrote, and of what it read.
        self.change, self.tells = lambda sequences: sequences, lambda outputs: outputs
        self.over = Event()  # set at a test's end, so that what hangs goes on
        self.longest = 99  # tokens that it writes at most, as if it was stopped
        self.closed, self.clients, self.now, self.hangs = 0, [], 0.0, False
        self.lib = SimpleNamespace(retry_handler=SimpleNamespace(RetryConfig=SimpleNamespace))
        self.types = SimpleNamespace(
            Datum=Datum, ModelInput=SimpleNamespace(from_ints=list),
            SamplingParams=SimpleNamespace, AdamParams=SimpleNamespace,
        )  # fmt: skip

    def called(self, what):
        """Note a call; raise the fault that is due, or hang."""
        self.calls.append(what)
        if (fault := self.faults.get(what)) == "hang":
            self.hangs = True
            self.over.wait()
        elif fault:
            raise fault

    def clock(self):
        """A clock that stands still until something hangs, so that no test waits or is too slow."""
        self.now += 1000.0 * self.hangs
        return self.now

    def bill(self, kind, tokens):
        self.usd += PRICES[kind] * tokens / 1e6

    def ServiceClient(self, *, base_url, api_key, http_client):
        self.keys.append(api_key)
        self.clients.append(http_client)
        self.called("connect")
        return Service(self)


def close(server):
    server.closed += 1


class Service:
    def __init__(self, server):
        self.server, self.holder = server, SimpleNamespace(close=partial(close, server))

    def get_server_capabilities(self):
        self.server.called("capabilities")
        models = [SimpleNamespace(model_name=name) for name in self.server.models]
        return SimpleNamespace(supported_models=models)

    def create_lora_training_client(self, *, base_model, rank, seed):
        self.server.called("create")
        self.server.made += 1
        return Training(self.server)

    def create_rest_client(self):
        return self

    def get_checkpoint_archive_url_from_tinker_path(self, path):
        self.server.called(path)
        return done(SimpleNamespace(url=self.server.archive))

    def get_checkpoint_archive_url(self, run, name):
        self.server.called(f"archive of {run}, {name}")
        return done(SimpleNamespace(url=self.server.archive))


class Training:
    def __init__(self, server):
        self.server, self.version, self.number = server, 0, server.made
        self.policy = tiny.policy()
        self.optimizer = torch.optim.Adam(self.policy.network.parameters())

    def logp(self, datum):
        ids = np.array([*datum.model_input, datum.loss_fn_inputs["target_tokens"][-1]], np.int32)
        return self.policy.logp([ids[:1]], [ids[1:]], temperature=1.0)[0]

    def forward(self, data, loss):
        assert loss == "cross_entropy"
        self.server.called("forward")
        self.server.bill("train", sum(len(d.model_input) + 1 for d in data))
        with torch.no_grad():
            outputs = [{"logprobs": SimpleNamespace(data=self.logp(d).tolist())} for d in data]
        return done(SimpleNamespace(loss_fn_outputs=self.server.tells(outputs)))

    def forward_backward(self, data, loss):
        assert loss == "importance_sampling"
        self.server.called("forward_backward")
        self.server.bill("train", sum(len(d.model_input) + 1 for d in data))
        total, all_weights = 0.0, 0.0
        for d in data:
            given = {k: torch.tensor(np.array(v)) for k, v in d.loss_fn_inputs.items()}
            assert {v.dtype for k, v in given.items() if k != "target_tokens"} == {torch.float32}
            if self.server.ignores_weights:
                given["weights"] = torch.ones_like(given["weights"])
            weight = given["weights"]
            logp = self.logp(d)
            part = -(weight * given["advantages"] * (logp - given["logprobs"]).exp()).sum()
            all_weights += weight.sum()
            rows = self.server.reduces == "rows"
            total = total + (part / weight.sum().clamp(min=1e-9) if rows else part)
        divisor = {"sum": 1.0, "rows": len(data), "weights": all_weights}[self.server.reduces]
        (total / divisor).backward()
        return done(SimpleNamespace(metrics={}))

    def optim_step(self, adam):
        self.server.called("optim_step")
        (group,) = self.optimizer.param_groups
        group["lr"], group["eps"] = adam.learning_rate, 1e-12
        if hasattr(adam, "beta1"):
            group["betas"] = adam.beta1, adam.beta2
        parameters = list(self.policy.network.parameters())
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.version += 1
        return done(SimpleNamespace(metrics={"skyrl.ai/grad_norm": norm.item()}))

    def save_state(self, name, ttl_seconds=None):
        self.server.called("save_state")
        assert (ttl_seconds is not None) == (name == "probe"), "what is resumed from is kept"
        path = f"tinker://run-{self.number}/weights/{name}"
        state = self.policy.network.state_dict(), self.optimizer.state_dict()
        self.server.states[path] = copy.deepcopy(state)
        return done(SimpleNamespace(path=path))

    def load_state_with_optimizer(self, path):
        self.server.called("load_state")
        if path not in self.server.states:
            raise type("NotFoundError", (Exception,), {"status_code": 404})(f"no checkpoint {path}")
        weights, moments = copy.deepcopy(self.server.states[path])
        self.policy.network.load_state_dict(weights)
        self.optimizer.load_state_dict(moments)
        self.version += 1
        return done(None)

    def save_weights_for_sampler(self, name):
        self.server.called("save_weights")
        return done(SimpleNamespace(path=f"tinker://run-{self.number}/{name}"))

    def save_weights_and_get_sampling_client(self, retry_config):
        self.server.called("publish")
        assert retry_config.enable_retry_logic is False, "what is repeated is billed again"
        return Sampling(self)


class Sampling:
    def __init__(self, training):
        self.training, self.version = training, training.version

    def sample(self, prompt, count, params):
        server, policy = self.training.server, self.training.policy
        server.called("sample")
        server.seeds += [params.seed] * (params.temperature > 0)
        assert self.version == self.training.version, "a stale sampler was asked"
        said = []
        for index in range(count):
            dice, tokens, logps = torch.Generator().manual_seed(params.seed + index), [], []
            most = min(params.max_tokens, server.longest)
            while len(tokens) < most and (not tokens or tokens[-1] not in params.stop):
                ids = torch.tensor([[*prompt, *tokens]])
                with torch.no_grad():
                    logits = policy.network(input_ids=ids).logits[0, -1, : policy.vocabulary]
                logp = logits.float().log_softmax(dim=0)
                draw = torch.multinomial(logp.exp(), 1, generator=dice)
                token = int(draw if params.temperature else logp.argmax())
                tokens.append(token)
                logps.append(float(logp[token]))
            said.append(SimpleNamespace(tokens=tokens, logprobs=logps, stop_reason="stop"))
        server.bill("prompt", len(prompt))
        server.bill("completion", sum(len(each.tokens) for each in said))
        return done(SimpleNamespace(sequences=server.change(said)))
