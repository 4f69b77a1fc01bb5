"""What nodes must agree on for a completion of one to be of use to another."""

from collections.abc import Callable
from dataclasses import dataclass

from potluck.exchange.base import WireError
from potluck.exchange.wire import Limits, Message, Origin
from potluck.types import Completion

PromptDigest = Callable[[str], bytes | None]
"""From a problem's id to the digest of its prompt's ids; None: the task has no such problem."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What this node's batches say of how they were made, and what it takes from others."""

    run: str
    node: str
    origin: Origin
    limits: Limits
    prompt_digest: PromptDigest

    def message(self, round: int, batch: tuple[Completion, ...]) -> Message:
        """This node's word on a round."""
        prompts = {}
        for id in dict.fromkeys(c.problem_id for c in batch):
            if (digest := self.prompt_digest(id)) is None:
                raise ValueError(f"the task has no problem {id!r}")
            prompts[id] = digest
        return Message(self.run, round, self.node, self.origin, prompts, batch)

    def admit(self, sender: str, round: int, message: Message) -> tuple[Completion, ...]:
        """The completions of ``sender``'s message of ``round``, which can be used here.

        Sizes, counts, ids and log-probabilities were looked at while it was decoded.

        Raises:
            WireError: it is another node's, round's or run's, or was made on other terms;
                says which, both values, and what to do.
        """
        if (message.run, message.round, message.sender) != (self.run, round, sender):
            raise WireError(
                f"a message of {message.sender!r} for round {message.round} of {message.run!r} "
                f"came where that of {sender!r} for round {round} of {self.run!r} was expected"
            )
        self._require_same_origin(sender, message.origin)
        for id, digest in message.prompts.items():
            if (own := self.prompt_digest(id)) is None:
                raise WireError(f"{sender!r} sent problem {id!r}, which this task has not")
            if digest != own:
                raise WireError(
                    f"{sender!r} asked {id!r} with a prompt of digest {digest.hex()}, which here "
                    f"has {own.hex()}; nodes need one question, system prompt and chat template"
                )
        return message.completions

    def _require_same_origin(self, sender: str, theirs: Origin) -> None:
        ours = self.origin
        if theirs.tokenizer != ours.tokenizer:
            raise WireError(
                f"{sender!r} has a tokenizer with fingerprint {theirs.tokenizer.hex()}, and "
                f"{self.node!r} one with {ours.tokenizer.hex()}; nodes exchange token ids, so they "
                f"need models of one tokenizer"
            )
        if theirs.task != ours.task:
            raise WireError(
                f"{sender!r} is at a task of digest {theirs.task.hex()}, and {self.node!r} at "
                f"{ours.task.hex()}; nodes need the same data, rewards, seed, plan, "
                f"problems_per_round and group_size"
            )
        for name in ("temperature", "top_k", "top_p"):
            if (their := getattr(theirs, name)) != (our := getattr(ours, name)):
                raise WireError(
                    f"{sender!r} samples with {name} {their:g}, but this run has {our:g}; "
                    f"set [sampling] {name} alike"
                )
