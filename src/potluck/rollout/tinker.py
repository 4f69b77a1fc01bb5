"""A model that is served and trained behind the Tinker API.

Each call has a timeout, as the client asks a server that is gone for ever; the cause is asked for
apart. Its money is booked before it at the most that it can cost. The client library is loaded
here and nowhere else.
"""

import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen
from weakref import finalize

import numpy as np
import torch

from potluck.proxies import proxy_remark
from potluck.rollout import base, server
from potluck.rollout.base import TICK_S, Progress, PromptedRequest, Requests, RolloutError, Sampler
from potluck.rollout.texts.base import NOTHING, Booking, Books, Cost
from potluck.rollout.texts.options import TinkerOptions
from potluck.types import Completion, NonFiniteError

INSTALL = "pip install 'potluck[tinker]'"
WAYS_OUT = server.WAYS_OUT | {  # by the status of an answer
    404: "is url complete, and does the server still have what is asked for?",
    422: "its version may not know the loss",
}
SAYINGS = {  # ways out by what an error without such a status says
    r"\bproto\b": f"server and library do not understand each other: {INSTALL} has a tried one",
    r"with the 'tml-'": "the variable that api_key_variable names holds no key of this kind",
    r"\badapters\b": "a client that was killed keeps its own for 5 minutes: wait, or allow more",
    r"\brank\b": "lower r in the node's table lora",
    r"^APIResponseValidationError": "is url complete, and that of such a server?",
}
READY_S = 20.0
UNANSWERED = "APIConnectionError", "APITimeoutError"
PROBE_RATE, PROBE_KEPT_S = 1e-3, 3600
AT_ONCE = 16  # requests that are under way, each with a thread
OTHER_SERVER = "take another server, or another version of it"
Pair = tuple[np.ndarray, np.ndarray]  # ids of a prompt and of its completion
Asked = tuple[str, Cost, Future[Any]]  # a call's name, the most that it can cost, its answer
Attempt = Callable[[], Any]
Tick = Callable[[], None]


def library() -> Any:
    """Load the client library; raise RolloutError if it is not here."""
    os.environ["TINKER_TELEMETRY"] = "0"  # it would go to any url
    try:
        import tinker
    except ImportError as error:
        raise RolloutError(f"engine 'tinker' needs its library ({error}); {INSTALL}") from error
    logging.getLogger("tinker").setLevel(logging.CRITICAL)  # errors are told here
    return tinker


@dataclass(eq=False)
class TinkerSession:
    """A node's adapter on a server, and the newest sampler of it."""

    options: TinkerOptions
    model: str
    folder: Path  # of the node

    def __post_init__(self) -> None:
        """Connect; raise RolloutError unless the server has the model."""
        tinker, key = library(), self.options.address.key()
        self.node, self.books = self.folder.name, Books(self.folder, base.ignore)
        from httpx import AsyncClient

        self._types, self._under_way = tinker.types, NOTHING
        self._sampler: Any = None
        # A sample that the library asks for again is a new one to the server, and is billed again.
        self._retries = tinker.lib.retry_handler.RetryConfig(enable_retry_logic=False)
        line = AsyncClient(follow_redirects=False)  # a redirect would take the key along
        connect = partial(tinker.ServiceClient, base_url=self.options.url, http_client=line)
        self._service: Any = self.call("connecting", partial(connect, api_key=key or "tml-none"))
        finalize(self, self._service.holder.close)  # it tells the server that it lives, for ever
        told = self.call("its capabilities", self._service.get_server_capabilities)
        names = [each.model_name for each in told.supported_models if each.model_name]
        if names and self.model not in names:
            there = self.options.address.line(", ".join(names))
            raise RolloutError(
                f"{self.options.url} has no model {self.model!r}; name one of {there} "
                f"as [node.{self.node}] model, and what reads its ids as its engine's tokenizer"
            )

    def open(self, rank: int, seed: int, saved: str, ids: Sequence[int]) -> None:
        """Make an adapter, from the state ``saved`` on the server if there is one; RolloutError if
        the server has no room, or does not learn ``ids`` as it should."""
        self.books.begin(0)  # a line that a crash cut off would spoil the next
        create = partial(self._service.create_lora_training_client, base_model=self.model)
        create = partial(create, rank=rank, seed=seed)
        self._client: Any = self.call(f"an adapter of rank {rank}", create)
        self._probe(np.array(ids, np.int32), saved)

    def ask(self, prompt_P: np.ndarray, count: int, **params: Any) -> Asked:
        """Begin to write ``count`` completions with the newest weights. An older sampler is never
        asked: there are servers that would put its weights in the place of those in training."""
        if self._sampler is None:
            publish = self._client.save_weights_and_get_sampling_client
            publish = partial(publish, retry_config=self._retries)
            self._sampler = self.call("a new sampler", publish)
        # Whether a prompt is paid once, or for each completion, is not known.
        most = self.options.cost(count * len(prompt_P), count * params["max_tokens"])
        prompt = self._types.ModelInput.from_ints(prompt_P.tolist())
        ask = partial(self._sampler.sample, prompt, count, self._types.SamplingParams(**params))
        return self._begin("sampling", ask, most)

    def written(self, asked: Asked, tick: Tick) -> Sequence[Any]:
        """Wait for the sequences that were asked for."""
        sequences: Sequence[Any] = self._end(asked, tick).sequences
        tokens = sum(len(each.tokens) for each in sequences)
        self.books.add(Booking(self.options.cost(asked[1].prompt_tokens, tokens) - asked[1]))
        return sequences

    def logp(self, rows: Sequence[Pair], tick: Tick = lambda: None) -> list[Any]:
        """Read ln p of the tokens of (prompt, completion) pairs, nats, at temperature 1."""
        data = [self._datum(row, weights=np.ones(len(row[1]))) for row in rows]
        forward = partial(self._client.forward, data, "cross_entropy")
        price = self.options.training_cost(sum(len(ids) for row in rows for ids in row))
        outputs = self.call("forward", forward, price, tick).loss_fn_outputs
        told = [each.get("logprobs") for each in outputs]
        found = [np.asarray([] if at is None else at.data, np.float32) for at in told]
        if [*map(len, found)] != [len(p) + len(t) - 1 for p, t in rows]:
            raise RolloutError(
                f"{self.options.url} told other log-probabilities than those of the {len(rows)} "
                f"completions that it was to read; {OTHER_SERVER}"
            )
        return [of[len(p) - 1 :][: len(t)] for of, (p, t) in zip(found, rows, strict=True)]

    def step(
        self, rows: Sequence[Pair], columns: Sequence[Mapping[str, np.ndarray]], **adam: float
    ) -> float:
        """Take a step on the rows, each with its ``weights``, ``advantages`` and ``logprobs`` of
        the completion's tokens. Return the gradient's norm in the server's unit; 0: untold."""
        data = [self._datum(row, **column) for row, column in zip(rows, columns, strict=True)]
        learn = partial(self._client.forward_backward, data, "importance_sampling")
        price = self.options.training_cost(sum(len(ids) for row in rows for ids in row))
        self._sampler = None
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
            run, _, name = path.removeprefix("tinker://").partition("/")
            find = partial(rest.get_checkpoint_archive_url, run, name.rpartition("/")[2])
            return str(self.call(what, find).url)

    def _probe(self, ids_P: np.ndarray, saved: str) -> None:
        """Raise RolloutError if the server ignores weights, or does not learn at all; then load the
        state ``saved``, or that of before. It has Adam's moments, which are not the probe's.

        Of two rows each learns, with weight 1, one of two tokens, and unlearns the other with
        weight 0, three times as much: without weights both tokens become less likely.
        """
        if not saved:
            save = partial(self._client.save_state, "probe", ttl_seconds=PROBE_KEPT_S)
            saved = self.call("saving", save).path
        pair = ids_P[:1], np.resize(ids_P[::-1], 2)
        (logp_T,) = self.logp([pair])
        columns = [{"weights": w_T, "advantages": 4 * w_T - 3} for w_T in np.eye(2)]
        columns = [column | {"logprobs": logp_T} for column in columns]
        self.step([pair, pair], columns, learning_rate=PROBE_RATE)
        moved = (self.logp([pair])[0] - logp_T).sum()
        self.call(f"loading {saved}", partial(self._client.load_state_with_optimizer, saved))
        if not moved > 0:
            raise RolloutError(
                f"{self.options.url} ignores the weights of a loss, or does not learn: ln p of "
                f"what a probe learned moved by {moved:+.2g}; take another server (docs/tinker.md)"
            )

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
        asked = self._begin(what, attempt, price)
        found = self._end(asked, tick)
        if price.requests:
            self.books.add(Booking(price - asked[1]))
        return found

    def _begin(self, what: str, attempt: Attempt, most: Cost = NOTHING) -> Asked:
        """Begin a call in a thread that the process does not wait for; book the most that it can
        cost. Raise RolloutError if the budget is spent."""
        if most.requests:
            if spent := self.options.spent(self.node, self.books.spent - self._under_way):
                way_out = f"to go on, raise it in [node.{self.node}.engine], with --resume"
                raise RolloutError(f"{spent}: {way_out}")
            most = replace(most, booked=1)
            self.books.add(Booking(most))
            self._under_way += most

        def work() -> Any:
            found = attempt()  # some calls wait by themselves, and others return a future
            within = {"timeout": self.options.timeout_s}
            return found.result(**within) if hasattr(found, "result") else found

        return what, most, server.begin(work)

    def _end(self, asked: Asked, tick: Tick) -> Any:
        what, most, future = asked
        until_s = monotonic() + self.options.timeout_s + TICK_S
        while wait([future], TICK_S).not_done and monotonic() < until_s:
            tick()
        self._under_way -= most
        # What is raised may be asyncio's CancelledError, which is no Exception.
        if error := future.exception() if future.done() else TimeoutError():
            raise self._error(what, error) from None  # its text may have the key
        return future.result()

    def _error(self, what: str, error: BaseException) -> RolloutError:
        """Say what a failure means; its cause has the answer's status where the error has none."""
        url, said = self.options.url, self.options.address.line(f"{type(error).__name__}: {error}")
        if isinstance(error, TimeoutError) or type(error).__name__ in UNANSWERED:
            return RolloutError(f"{url}, {what}: {self._cause()}{proxy_remark(url)}")
        told: Any = error if hasattr(error, "status_code") else error.__cause__
        if 300 <= (status := getattr(told, "status_code", 0)) < 400:
            said = self.options.address.line(f"it leads to {told.response.headers.get('location')}")
        ways = [WAYS_OUT[status]] if status in WAYS_OUT else []
        ways += [way for saying, way in SAYINGS.items() if re.search(saying, said)]
        way, *_ = [*ways, "its log says more; then go on with --resume"]
        return RolloutError(f"{url} refuses {what} ({said}); {way}")

    def _cause(self) -> str:
        """Ask whether a server that did not answer is there at all."""
        place = f"{self.options.url.rstrip('/')}/api/v1/healthz"
        within, there = f"no answer within {self.options.timeout_s:g} seconds", "is there"
        patience_s = min(READY_S, self.options.timeout_s)
        *_, future = self._begin("its health", lambda: urlopen(place, timeout=patience_s).close())
        wait([future], patience_s)  # a timeout of a socket is none of a whole answer
        error = future.exception() if future.done() else TimeoutError("no whole answer")
        if isinstance(error, HTTPError):  # it answers
            there = f"answers with status {error.code}"
        elif error:
            said = self.options.address.line(repr(error))
            return f"{within}, and the server is gone ({said}); start it, then use --resume"
        return (
            f"{within}, though the server {there}: raise timeout_s, or see its log for an id "
            f"beyond its vocabulary (is tokenizer that of its model?), or for an account in debt"
        )


@dataclass(frozen=True, eq=False)
class TinkerEngine(base.Engine):
    """An engine on the newest weights of a session."""

    session: TinkerSession

    def generate(
        self, requests: Requests, sampler: Sampler, *, author: str, progress: Progress
    ) -> list[Completion]:
        written, total = list[Completion](), sum(request.count for request in requests)
        self.session.books.begin(0)
        asking = self._ask_all(requests, sampler)
        begun = deque(islice(asking, AT_ONCE))
        while begun:
            request, asked = begun.popleft()
            said = self.session.written(asked, partial(progress, len(written), total))
            begun.extend(islice(asking, 1))
            if len(said) != request.count:
                wrote = f"{len(said)} completions of {request.problem.id!r}, not {request.count}"
                raise RolloutError(f"{self.session.options.url} wrote {wrote}; {OTHER_SERVER}")
            for index, each in enumerate(said):
                written.append(self._completion(each, request, index, author))
        progress(total, total)
        return written

    def _ask_all(
        self, requests: Requests, sampler: Sampler
    ) -> Iterator[tuple[PromptedRequest, Asked]]:
        """Begin each request when the next is asked for; yield it, and its answer to come."""
        drawing = {"temperature": 0.0, "seed": 0}
        for request in self.prompted([each for each in requests if each.count]):
            if isinstance(sampler, base.RandomSampler):
                seed = int(torch.randint(2**31 - 1, (), generator=sampler.generator))
                drawing = {"temperature": 1.0, "seed": seed}
            given = {"max_tokens": request.longest, "stop": sorted(self.policy.stop_ids)}
            yield request, self.session.ask(request.prompt_P, request.count, **given, **drawing)

    def _completion(
        self, said: Any, request: PromptedRequest, index: int, author: str
    ) -> Completion:
        url, what = self.session.options.url, f"completion {index} of {request.problem.id!r}"
        try:
            if said.logprobs is None:
                raise server.NotWritten("without log-probabilities", OTHER_SERVER)
            if not np.isfinite(said.logprobs).all():
                raise NonFiniteError(f"{url} wrote {what} with a log-probability of no finite size")
            # Why it ended, servers tell otherwise, or not at all.
            finish = "length" if len(said.tokens) == request.longest else "stop"
            told, most = (said.tokens, said.logprobs, finish), request.longest
            read = server.read_written(*told, most=most, policy=self.policy)
        except server.NotWritten as error:
            raise RolloutError(f"{url} wrote {what} {'; '.join(error.args)}") from None
        return Completion(request.problem.id, author, index, *read)
