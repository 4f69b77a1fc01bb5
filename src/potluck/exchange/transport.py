"""The transports by name, and what each is given of a node: its name, keys, addresses and terms."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from potluck.exchange.base import Exchange, Reason, WireError
from potluck.exchange.keys.keys import Key, KnownKeys
from potluck.exchange.protocol.mailbox import Partners
from potluck.exchange.protocol.rules import MailboxRule
from potluck.exchange.wire.byte_planes import Codec
from potluck.exchange.wire.message import NO_TOKENIZER, Limits, Message, Provenance
from potluck.reports.events import Told
from potluck.types import Completion

TRANSPORTS = {
    "zenoh": "potluck.exchange.zenoh.exchange",
    "folder": "potluck.exchange.folder.exchange",
}
"""Modules of the transports, by name; each has the functions of ``Transport``."""
Digest = Callable[[str], bytes | None]
"""Function of a problem's id that returns a digest of how it is asked; None: no such problem."""
Notify = Callable[[Told], None]
"""Function for news that a person may want to know; called from the training thread."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """One node's terms: what its own batches carry, and which batches of others it accepts."""

    run: str
    node: str
    provenance: Provenance
    limits: Limits
    prompt_digest: Digest
    """Digest of the prompt's ids; empty bytes without a tokenizer."""
    question_digest: Digest
    """Digest of the prompt's messages, for completions that are read as texts."""

    def message(self, round: int, batch: tuple[Completion, ...]) -> Message:
        """Return this node's message of a round; raise ValueError if the task lacks a problem.
        Texts beyond half of the largest message do not go; nor do completions of a text alone."""
        batch = tuple(_texts_within(batch, self.limits.message_bytes // 2))
        prompts, questions = {}, {}
        for id in dict.fromkeys(c.problem_id for c in batch):
            prompt, question = self.prompt_digest(id), self.question_digest(id)
            if prompt is None or question is None:
                raise ValueError(f"the task has no problem {id!r}")
            prompts[id], questions[id] = prompt, question
        made = Message(self.run, round, self.node, self.provenance, prompts, batch, questions)
        return made if made.has_texts else replace(made, questions={})

    def accept(self, sender: str, round: int, message: Message) -> tuple[Completion, ...]:
        """Return the completions of a decoded message; raise WireError if it is another node's,
        round's or run's, or was made on other terms: says which, both values, and what to do."""
        if (message.run, message.round, message.sender) != (self.run, round, sender):
            reason: Reason = "other run" if message.run != self.run else "other round"
            raise WireError(
                f"a message of {message.sender!r} for round {message.round} of {message.run!r} "
                f"came where that of {sender!r} for round {round} of {self.run!r} was expected",
                reason if message.sender == sender else "forged",
            )
        theirs, ours = message.provenance, self.provenance
        # Without a tokenizer a node learns from nobody, and takes what comes to keep in step.
        one_tokenizer = ours.tokenizer in (theirs.tokenizer, NO_TOKENIZER)
        if not (one_tokenizer or message.questions or not message.completions):
            raise WireError(
                f"{sender!r} has a tokenizer with fingerprint {theirs.tokenizer.hex() or 'none'}, "
                f"and {self.node!r} one with {ours.tokenizer.hex()}, but only token ids came; set "
                f"[swarm] text = 'always' on both sides, or take models of one tokenizer",
                "other tokenizer",
            )
        self.require_same_task(sender, theirs.task)
        for name, our in asdict(ours.sampling).items():
            if (their := getattr(theirs.sampling, name)) != our:
                raise WireError(
                    f"{sender!r} samples with {name} {their:g}, but this run has {our:g}; "
                    f"set [sampling] {name} alike",
                    "other sampling",
                )
        for id, prompt in message.prompts.items():
            self._require_same_question(sender, id, prompt if one_tokenizer else b"", message)
        return message.completions

    def _require_same_question(self, sender: str, id: str, prompt: bytes, message: Message) -> None:
        """Raise WireError unless a problem was asked with the same ids (``prompt``: their digest,
        empty if they are not to be compared), or the same messages, where there are texts."""
        own = self.prompt_digest(id)
        if own is None:
            raise WireError(f"{sender!r} sent problem {id!r}, which the task has not", "other task")
        if question := message.questions.get(id):
            what, theirs, own = "messages", question, self.question_digest(id) or b""
        elif self.provenance.tokenizer == NO_TOKENIZER:
            return
        else:
            what, theirs = "a prompt", prompt
        if theirs != own:
            raise WireError(
                f"{sender!r} asked {id!r} with {what} of digest {theirs.hex()}, which here has "
                f"{own.hex()}; nodes need one question, system prompt and chat template",
                "other task",
            )

    def require_same_task(self, sender: str, task: bytes) -> None:
        if task != (ours := self.provenance.task):
            raise WireError(
                f"{sender!r} is at a task of digest {task.hex()}, and {self.node!r} at "
                f"{ours.hex()}; nodes need the same data, rewards, seed, plan, "
                f"problems_per_round and group_size",
                "other task",
            )


def _texts_within(batch: Iterable[Completion], most_bytes: int) -> Iterator[Completion]:
    for completion in batch:
        size_bytes = len((completion.text or "").encode())
        if size_bytes <= most_bytes:
            most_bytes -= size_bytes
            yield completion
        elif len(completion.token_T):
            yield replace(completion, text=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """One node's part in a swarm: its name and keys, its addresses, and the rules it keeps."""

    agreement: Agreement
    key: Key
    known_keys: KnownKeys
    folder: Path
    """Folder of the node; its own sealed batches go to ``sent`` in it."""
    members: Collection[str]
    """Names that the run counts on; this node's may be among them."""
    partners: Partners
    codec: Codec
    rule: MailboxRule
    """Rule of the batches that it receives: a part of its pace."""
    kept_rounds: int
    """Rounds for which own batches can be fetched."""
    quarantine_s: float
    """Length of a first quarantine, after three faults; 0: there is none."""
    listen: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    certificates: Path | None = None
    """Folder of certificates; None: connections are not encrypted."""
    may_connect: tuple[str, ...] = ()
    """Names of the certificates that may connect."""
    already_received: Mapping[tuple[str, int], bytes] = field(default_factory=dict)
    """Sealed batches by (author, round) from before a restart: fetched again they would be late."""
    watches_status: bool = False
    """True: the node listens to the status lines of others; it tells its own in any case."""
    notify: Notify = lambda told: None
    waiting: Callable[[], None] = lambda: None
    """Function that is called while the transport opens, as ``Waiting`` is later."""


class Transport(Protocol):
    """A module that connects nodes, and knows what their addresses look like."""

    def open_exchange(self, own: Membership) -> AbstractContextManager[Exchange]:
        """Join the swarm; leaving the context leaves it. Raise ExchangeError if it cannot be
        joined: an address in use, a certificate that is not readable."""

    def check_endpoints(
        self, where: str, endpoints: Sequence[str], *, tls: bool, listen: bool
    ) -> None:
        """Raise ExchangeError for the first address that this transport cannot use, with or without
        ``tls``, to ``listen`` on or to call; ``where`` is the recipe's key, for the message."""

    def free_endpoints(self, count: int, folder: Path) -> Sequence[str]:
        """Return addresses for ``count`` nodes of this machine; ``folder`` is for their files."""

    def try_endpoint(self, endpoint: str, *, listen: bool) -> OSError | None:
        """Take an address that is sound for a moment, or call it; return what was wrong with it."""


def transport(name: str) -> Transport:
    """Return a transport. Loaded with its first use: one process needs no network."""
    return cast(Transport, import_module(TRANSPORTS[name]))
