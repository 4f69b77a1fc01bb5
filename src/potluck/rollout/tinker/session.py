"""A model behind the Tinker API: its calls, what they cost, and what their failures mean.

Each call has a timeout, as the client asks a server that is gone for ever; the cause is asked for
apart. Its money is booked before it at the most that it can cost. The client library is loaded
here and nowhere else.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np

from potluck.files import one_line
from potluck.rollout.base import TICK_S, RolloutError
from potluck.rollout.options import EngineOptions
from potluck.rollout.settings import ignore
from potluck.rollout.texts.base import NOTHING, Cost
from potluck.rollout.texts.books import Booking, Books
from potluck.rollout.texts.endpoint import READY_S
from potluck.rollout.tinker.options import TinkerOptions

INSTALL = "pip install 'potluck[tinker]'"
WAYS_OUT = {
    "proto": f"server and client library do not understand each other: {INSTALL} has a tried one",
    "tml-": "the variable that api_key_variable names holds no key of this kind",
    "authentication": "name the variable that holds its key in api_key_variable",
    "permission": "may this key use this model, and is it in api_key_variable?",
    "adapters": "a client that was killed keeps its own for five minutes: wait, or allow more",
    "rank": "lower r in the node's table lora",
    "notfound": "is url complete, and does the server still have what is asked for?",
    "unprocessable": "its version may not know the loss",
}
"""Way out, by a word in an error's type or text."""
PROBE_RATE = 1e-3
Pair = tuple[np.ndarray, np.ndarray]
"""Ids of a prompt and of its completion."""
Asked = tuple[Cost, Future[Any]]
"""Most that a request can cost, and its answer."""
Attempt = Callable[[], Any]
Tick = Callable[[], None]


def library() -> Any:
    """Load the client library; raise RolloutError if it is not here."""
    os.environ["TINKER_TELEMETRY"] = "0"  # it would go to any url
    try:
        import tinker
    except ImportError as error:
        raise RolloutError(f"engine 'tinker' needs its library ({error}); {INSTALL}") from error
    return tinker


@dataclass(eq=False)
class TinkerSession:
    """A node's adapter on a server, and the newest sampler of it."""

    options: TinkerOptions
    node: str
    model: str
    """Name of the model on the server."""
    books: Books

    @classmethod
    def of(cls, options: EngineOptions, model: str, folder: Path) -> "TinkerSession":
        """Begin one of the node with this folder."""
        assert isinstance(options, TinkerOptions)
        return cls(options, folder.name, model, Books(folder, ignore))

    def __post_init__(self) -> None:
        """Connect; raise RolloutError unless the server has the model."""
        tinker, key = library(), self.options.address.key()
        self._types, self._is_probed = tinker.types, False
        self._sampler: Any = None
        client = partial(tinker.ServiceClient, base_url=self.options.url)
        self._service: Any = self.call("connecting", partial(client, api_key=key or "tml-none"))
        told = self.call("its capabilities", self._service.get_server_capabilities)
        names = [each.model_name for each in told.supported_models]
        if names and self.model not in names:
            raise RolloutError(
                f"{self.options.url} has no model {self.model!r}; name one of {', '.join(names)} "
                f"as [node.{self.node}] model, and what reads its ids as its engine's tokenizer"
            )

    def open(self, rank: int, seed: int, saved: str) -> None:
        """Make an adapter, as the state ``saved`` on the server if there is one; raise RolloutError
        if there is no room for it."""
        create = partial(self._service.create_lora_training_client, base_model=self.model)
        create = partial(create, rank=rank, seed=seed)
        self._client: Any = self.call(f"an adapter of rank {rank}", create)
        if saved:
            self._load(saved)

    def ask(self, prompt_P: np.ndarray, count: int, **params: Any) -> Asked:
        """Begin to write ``count`` completions with the newest weights. An older sampler is never
        asked: there are servers that would put its weights in the place of those in training."""
        if not self._is_probed:
            self._probe(prompt_P)
        if self._sampler is None:
            self._sampler = self.call(
                "a new sampler", self._client.save_weights_and_get_sampling_client
            )
        # Whether a prompt is paid once, or for each completion, is not known.
        most = self.options.cost(count * len(prompt_P), count * params["max_tokens"])
        prompt = self._types.ModelInput.from_ints(prompt_P.tolist())
        ask = partial(self._sampler.sample, prompt, count, self._types.SamplingParams(**params))
        return most, self._begin(ask, most)

    def written(self, asked: Asked, tick: Tick) -> Sequence[Any]:
        """Wait for the sequences that were asked for."""
        most, future = asked
        sequences: Sequence[Any] = self._end("sampling", future, tick).sequences
        tokens = sum(len(each.tokens) for each in sequences)
        self._book(most, self.options.cost(most.prompt_tokens, tokens))
        return sequences

    def logp(self, rows: Sequence[Pair], tick: Tick = lambda: None) -> list[Any]:
        """Read ln p of the tokens of (prompt, completion) pairs, nats, at temperature 1."""
        data = [self._datum(row, weights=np.ones(len(row[1]))) for row in rows]
        forward = partial(self._client.forward, data, "cross_entropy")
        price = self.options.training_cost(_tokens(rows))
        outputs = self.call("forward", forward, price, tick).loss_fn_outputs
        told = [each.get("logprobs") for each in outputs]
        found = [np.asarray([] if at is None else at.data, np.float32) for at in told]
        if [*map(len, found)] != [len(p) + len(t) - 1 for p, t in rows]:
            raise RolloutError(
                f"{self.options.url} told other log-probabilities than those of the {len(rows)} "
                f"completions that it was to read; take another server, or another version of it"
            )
        return [of[len(p) - 1 :][: len(t)] for of, (p, t) in zip(found, rows, strict=True)]

    def step(
        self, rows: Sequence[Pair], columns: Sequence[Mapping[str, np.ndarray]], **adam: float
    ) -> float:
        """Take a step on the rows, each with its ``weights``, ``advantages`` and ``logprobs`` of
        the completion's tokens. Return the gradient's norm in the server's unit; 0: untold."""
        data = [self._datum(row, **column) for row, column in zip(rows, columns, strict=True)]
        learn = partial(self._client.forward_backward, data, "importance_sampling")
        price, self._sampler = self.options.training_cost(_tokens(rows)), None
        self.call("forward_backward", learn, price)
        step = partial(self._client.optim_step, self._types.AdamParams(**adam))
        told = self.call("optim_step", step).metrics or {}
        return float(next((told[key] for key in told if "grad_norm" in key), 0.0))

    def save(self, name: str) -> dict[str, str]:
        """Keep the state, and the weights for export, on the server; return where."""
        saves = self._client.save_state, self._client.save_weights_for_sampler
        state, weights = (self.call(f"saving {name!r}", partial(s, name)).path for s in saves)
        if (kind := "/sampler_weights/") not in weights:  # as SkyRL has it, and no client takes
            weights = kind.join(weights.rsplit("/", 1))
        return {"state": state, "weights": weights}

    def archive_url(self, path: str) -> str:
        """Find the address from which saved weights can be downloaded."""
        rest, what = self._service.create_rest_client(), f"the archive of {path}"
        find = partial(rest.get_checkpoint_archive_url_from_tinker_path, path)
        try:
            return str(self.call(what, find).url)
        except RolloutError:  # SkyRL knows it by its name without the kind
            run, _, name = path.removeprefix("tinker://").split("/")
            return str(self.call(what, partial(rest.get_checkpoint_archive_url, run, name)).url)

    def _load(self, path: str) -> None:
        self.call(f"loading {path}", partial(self._client.load_state_with_optimizer, path))

    def _probe(self, prompt_P: np.ndarray) -> None:
        """Raise RolloutError if the server ignores weights, or does not learn at all.

        Of two rows each learns, with weight 1, one of two tokens, and unlearns the other with
        weight 0, three times as much: without weights both tokens become less likely.
        """
        start = self.call("saving", partial(self._client.save_state, "probe")).path
        pair = prompt_P[:1], np.resize(prompt_P[::-1], 2)
        (logp_T,) = self.logp([pair])
        columns = [
            {"weights": one_T, "advantages": 4 * one_T - 3, "logprobs": logp_T}
            for one_T in np.eye(2)
        ]
        self.step([pair, pair], columns, learning_rate=PROBE_RATE)
        moved = (self.logp([pair])[0] - logp_T).sum()
        self._load(start)
        if not moved > 0:
            raise RolloutError(
                f"{self.options.url} ignores the weights of a loss, or does not learn: ln p of "
                f"what a probe learned moved by {moved:+.2g}; take another server (docs/tinker.md)"
            )
        self._is_probed = True

    def _datum(self, row: Pair, **column: np.ndarray) -> Any:
        """Make a row: position i of the input predicts token i + 1, and what belongs to the tokens
        of the completion stands behind zeros."""
        ids, zeros = np.concatenate(row), np.zeros(len(row[0]) - 1)
        inputs = {k: np.concatenate([zeros, x]).astype(np.float32) for k, x in column.items()}
        return self._types.Datum(
            model_input=self._types.ModelInput.from_ints(ids[:-1].tolist()),
            loss_fn_inputs={"target_tokens": ids[1:].astype(np.int64), **inputs},
        )

    def call(
        self, what: str, attempt: Attempt, price: Cost = NOTHING, tick: Tick = lambda: None
    ) -> Any:
        """Do what costs as much as is known before."""
        found = self._end(what, self._begin(attempt, price), tick)
        self._book(price, price)
        return found

    def _book(self, most: Cost, told: Cost) -> None:
        """Put what a call did cost in the place of the most that it could."""
        if most.requests:
            self.books.add(Booking(told - replace(most, booked=1)))

    def _begin(self, attempt: Attempt, most: Cost = NOTHING) -> Future[Any]:
        """Begin a call in a thread that the process does not wait for; book the most that it can
        cost. Raise RolloutError if the budget is spent."""
        if most.requests:
            if self.options.is_spent(spent := self.books.spent):
                raise RolloutError(
                    f"the budget of {self.node!r} is spent ({spent.prompt_tokens} tokens read, "
                    f"{spent.completion_tokens} written, {spent.usd:.2f} USD): to go on, raise it "
                    f"in [node.{self.node}.engine], with --resume"
                )
            self.books.add(Booking(replace(most, booked=1)))
        future = Future[Any]()

        def work() -> None:
            try:
                found = attempt()  # some calls wait by themselves, and others return a future
                within = {"timeout": self.options.timeout_s}
                future.set_result(found.result(**within) if hasattr(found, "result") else found)
            except BaseException as error:
                future.set_exception(error)

        Thread(target=work, daemon=True).start()
        return future

    def _end(self, what: str, future: Future[Any], tick: Tick) -> Any:
        """Wait for a call; raise RolloutError with the way out if it failed."""
        until_s = monotonic() + self.options.timeout_s + TICK_S
        while wait([future], TICK_S).not_done and monotonic() < until_s:
            tick()
        try:
            return future.result(timeout=0)
        except Exception as error:
            raise self._error(what, error) from error

    def _error(self, what: str, error: Exception) -> RolloutError:
        said = one_line(f"{type(error).__name__}: {error}", 300)
        if isinstance(error, TimeoutError) or "connect" in said.lower():
            return RolloutError(f"{self.options.url}, {what}: {self._cause()}")
        ways = [way for word, way in WAYS_OUT.items() if word in said.lower()]
        way, *_ = [*ways, "its log says more; then go on with --resume"]
        return RolloutError(f"{self.options.url} refuses {what} ({said}); {way}")

    def _cause(self) -> str:
        """Ask whether a server that did not answer is there at all."""
        within = f"no answer within {self.options.timeout_s:g} seconds"
        place = f"{self.options.url.rstrip('/')}/api/v1/healthz"
        try:
            with suppress(HTTPError):  # it answers
                urlopen(place, timeout=min(READY_S, self.options.timeout_s)).close()
        except OSError as error:
            return f"{within}, and the server is gone ({error}); start it, then use --resume"
        return (
            f"{within}, though the server is there: raise timeout_s, or see its log for an id "
            f"beyond its vocabulary (is tokenizer that of its model?), or for an account in debt"
        )


def _tokens(rows: Sequence[Pair]) -> int:
    return sum(len(prompt_P) + len(token_T) for prompt_P, token_T in rows)
