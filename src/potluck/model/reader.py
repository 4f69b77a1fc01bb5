"""A model without its weights: reads texts as ids, and ids as texts.

A text stands behind a prompt in the tokenizer's ids exactly, or not at all: it is what a decoder
adds to the prompt's end, so the space that some tokenizers put before a first word is seen, and not
guessed. "<|im_end|>" in a peer's text becomes the ids of its letters, or is refused.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import Any, TypedDict

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from potluck.episode import Turn, text_of
from potluck.model import loading
from potluck.model.dialect import Speech, segments
from potluck.model.loading import ModelError
from potluck.model.prompt import Prompt, Variables, is_templated, prompt_of, special_tokens
from potluck.model.stop_texts import end_of_stop_text, graded_part
from potluck.types import ChatTemplate, Completion, Observation, Problem

TAIL = 4  # ids of a prompt's end, behind which a continuation is decoded
ANCHOR = "\n"  # before a continuation, where one that is encoded alone would get a space
UNKNOWN = "\ufffd"  # sign that a decoder writes where ids are no whole character


class Texts(TypedDict):
    """How a recipe has a model asked, and what ends its completions: arguments of a ``Reader``."""

    stop: Sequence[str]
    stop_texts: Sequence[str]
    variables: Variables
    chat_template: ChatTemplate


class Reader:
    """A tokenizer, and the limits of the model that it belongs to."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        vocabulary: int,
        stop_ids: frozenset[int],
        stop: Sequence[str] = (),
        stop_texts: Sequence[str] = (),
        context: int = 0,
        variables: Variables | None = None,
        chat_template: ChatTemplate = "model",
    ) -> None:
        """Take ids below ``vocabulary``, those after which nothing follows, the names of those that
        the recipe adds, the texts that end a completion as well, the model's positions, in tokens
        (0: it does not say), and the variables of its chat template, if that is used."""
        self.tokenizer, self.stop_ids, self.context = tokenizer, stop_ids, context
        self.stop_texts = tuple(stop_texts)
        if self.stop_texts:
            self._require_plain_stop_texts()
        self.variables = dict(variables or {})
        self.chat_template = chat_template
        # Not len(tokenizer): that is a count, and ids may have gaps.
        self.vocabulary = min(max(tokenizer.get_vocab().values()) + 1, vocabulary)
        self._named_stops = tuple(stop)
        make_prompt = partial(
            prompt_of, tokenizer, variables=self.variables, chat_template=chat_template
        )
        # Called with a problem, it returns the prompt; raises as ``prompt_of``.
        self.asked: Callable[[Problem], Prompt] = lru_cache(maxsize=1024)(make_prompt)
        self._observed = lru_cache(maxsize=4096)(self._spell_observed)

    def _require_plain_stop_texts(self) -> None:
        for name in special_tokens(self.tokenizer).values():
            for text in self.stop_texts:
                if name in text:
                    raise ModelError(
                        f"[sampling] stop_texts has {text!r}, but {name!r} is a special token of "
                        f"{self.tokenizer.name_or_path!r}, which no text holds; name it in "
                        f"[sampling] stop"
                    )

    @property
    def device(self) -> torch.device:
        """Device on which the model computes; the CPU for one that computes elsewhere."""
        return torch.device("cpu")

    @classmethod
    def of(
        cls,
        model: str,
        *,
        stop: Sequence[str] = (),
        stop_texts: Sequence[str] = (),
        variables: Variables | None = None,
        chat_template: ChatTemplate = "model",
    ) -> "Reader":
        """Load all of a model but its weights; raise ModelError if there is no such model."""
        tokenizer, config = loading.load_tokenizer(model), loading.load_config(model)
        named = loading.stop_ids(tokenizer, stop, loading.load_generation_config(model), config)
        text: Any = config.get_text_config()
        context = getattr(text, "max_position_embeddings", None) or 0
        return cls(
            tokenizer,
            vocabulary=text.vocab_size,
            stop_ids=named,
            stop=stop,
            stop_texts=stop_texts,
            context=context,
            variables=variables,
            chat_template=chat_template,
        )

    def fingerprint(self) -> str:
        """Hash what is known of the model, not its weights."""
        known = f"{self.tokenizer.name_or_path} {self.vocabulary} {self.context}"
        return hashlib.sha256(known.encode()).hexdigest()

    @property
    def stop_id(self) -> int:
        """Stop token to put behind a text of another tokenizer's model: the one that the recipe
        names first, else the tokenizer's own end of text."""
        if self._named_stops:
            return int(self.tokenizer.get_vocab()[self._named_stops[0]])
        usual = self.tokenizer.eos_token_id
        return usual if usual in self.stop_ids else min(self.stop_ids)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of tokens that no text may become."""
        return frozenset(special_tokens(self.tokenizer))

    @cached_property
    def tokenizer_digest(self) -> bytes:
        """Digest that is equal where two models can read each other's ids, stop tokens included."""
        text = f"{loading.fingerprint(self.tokenizer)} {sorted(self.stop_ids)}"
        return hashlib.sha256(text.encode()).digest()[:16]

    def prompt(self, problem: Problem) -> np.ndarray:
        """Return int32 ids of the model's input before it writes."""
        return self.asked(problem).token_P

    def opening(self, problem: Problem) -> str:
        """Return the end of the prompt that is part of the answer, such as ``<think>``."""
        return self.asked(problem).opening

    def answer(self, problem: Problem, token_T: np.ndarray) -> str:
        """Return an answer as it is graded: what the prompt opened, and the tokens' text, of one
        that a stop text ends what is before it."""
        return self.opening(problem) + self._graded(token_T)

    def _graded(self, token_T: np.ndarray) -> str:
        ids = [int(id) for id in token_T if id < self.vocabulary and id not in self.stop_ids]
        if not self.holds_stop_text(ids):
            return self.text(token_T)
        # A special token parts what stands beside it, so it is left out only behind the cut: else
        # two halves of a stop text would end an answer that goes on.
        whole = self._behind_anchor(ids)
        cut_off = whole.removeprefix(graded_part(whole, self.stop_texts))
        words = self._behind_anchor([id for id in ids if id not in self.special_ids])
        return words.removesuffix(cut_off)

    def holds_stop_text(self, token_T: np.ndarray | Sequence[int]) -> bool:
        """Tell whether the tokens hold a text that ends a completion, which may begin and end
        within a token. It is whole with the last token of a completion, and not before."""
        if not self.stop_texts:
            return False
        text = self._behind_anchor([int(id) for id in token_T])
        return end_of_stop_text(text, self.stop_texts) is not None

    def _behind_anchor(self, ids: Sequence[int]) -> str:
        """Decode ids as they are, a space before the first word included."""
        text = self._decode_behind(self._anchor, ids)
        return self._decode(ids) if text is None else text

    def text(self, token_T: np.ndarray) -> str:
        """Decode the tokens, special ones left out. Ids of a peer may be any."""
        return self._decode([int(id) for id in token_T if id < self.vocabulary], skip_special=True)

    def shown(self, ids: Sequence[int]) -> str:
        """Decode ids as they are, special tokens by their names."""
        return self._decode(ids)

    def encode(self, prompt_P: np.ndarray, text: str) -> list[int] | None:
        """Find the tokenizer's own ids of a text behind a prompt, none of them special; None if no
        ids decode to it."""
        spellings = self._spellings(text)
        return next((s for s in spellings if self._decode_behind(prompt_P, s) == text), None)

    def _spellings(self, text: str) -> Iterator[list[int]]:
        yield self._encode(text)
        anchor, behind = self._encode(ANCHOR), self._encode(ANCHOR + text)
        if behind[: len(anchor)] == anchor:
            yield behind[len(anchor) :]

    def spelled(self, completion: Completion, problem: Problem, *, most_bytes: int) -> Completion:
        """Give an own completion its text, for readers with other tokenizers; None where no text of
        ``most_bytes`` says exactly what its ids do."""
        text = self.said(completion, problem)
        sent = text if text is not None and len(text.encode()) <= most_bytes else None
        return replace(completion, text=sent, tokenizer=self.tokenizer_digest)

    def said(self, completion: Completion, problem: Problem) -> str | None:
        """Find the text that says exactly what a completion's ids do but for its stop token, behind
        what its prompt opened; one that a stop text ends has this for its end. None: the ids have a
        special token, or bytes that are no whole character. Of an episode the text of its turns,
        which may write a call otherwise."""
        if completion.turns:
            parts = np.split(completion.token_T, np.cumsum(completion.turns)[:-1])
            turns = [turn for part in parts if (turn := self.turn_said(part)) is not None]
            return text_of(turns) if len(turns) == len(parts) else None
        ids, prompt_P = completion.token_T.tolist(), self.prompt(problem)
        by_token = completion.end == "stop" and ids[-1] in self.stop_ids
        ids = ids[: len(ids) - by_token]
        if self.special_ids.intersection(ids):
            return None
        text = self._decode_behind(prompt_P, ids)
        if text is None or (UNKNOWN in text and self.encode(prompt_P, text) != ids):
            return None
        # The last token may say more than the text that ends it: to others, that would go on.
        return self.opening(problem) + text[: end_of_stop_text(text, self.stop_texts)]

    @cached_property
    def speech(self) -> Speech:
        stops = [self._decode([id]) for id in sorted(self.stop_ids)]
        return Speech(self.tokenizer, stops, self.variables, self.chat_template)

    @property
    def is_templated(self) -> bool:
        """True: its prompts go through its chat template."""
        return is_templated(self.tokenizer, self.chat_template)

    def require_turns(self, problem: Problem) -> None:
        """Raise ModelError unless the model can call the tools, and goes on behind a turn."""
        asked = self.asked(problem)
        if asked.leaves_open:
            raise ModelError(
                f"the chat template of {self.tokenizer.name_or_path!r} opens "
                f"{asked.opening.strip()!r} before each turn, which an environment would not be "
                f"told of; set chat_template_kwargs = {{enable_thinking = false}} where the "
                f"template has that variable, or take a model that opens its thoughts itself"
            )
        if problem.tools and not self.speech.calls:
            raise ModelError(
                f"the chat template of {self.tokenizer.name_or_path!r} writes no tool calls that "
                f"can be read: a name, and arguments in JSON; take a model that calls tools so"
            )
        self.observed_ids([Observation("", "tool" * bool(problem.tools))])

    def turn_of(self, token_T: np.ndarray | Sequence[int]) -> Turn:
        """Read the ids of one turn, which may be any, with or without its stop token. Special
        tokens are left out, but for those of the model's calls."""
        ids = self._unstopped(token_T)
        ids = [id for id in ids if id not in self.special_ids or id in self._marks]
        text = self._decode_behind(self._anchor, ids)
        return self.speech.read(self._decode(ids) if text is None else text)

    def turn_said(self, token_T: np.ndarray | Sequence[int]) -> Turn | None:
        """Read one turn; None if no turn says exactly what its ids do, as in ``said``."""
        turn, ids = self.turn_of(token_T), self._unstopped(token_T)
        if (again := self.ids_of(turn)) is None or (UNKNOWN in text_of([turn]) and again != ids):
            return None
        only_calls = turn.calls and not turn.content  # whatever stands there is a mark of them
        kept, known = ([id for id in each if id in self.special_ids] for each in (ids, again))
        return turn if only_calls or kept == known else None

    def _unstopped(self, token_T: np.ndarray | Sequence[int]) -> list[int]:
        ids = [int(id) for id in token_T if id < self.vocabulary]
        return ids[:-1] if ids and ids[-1] in self.stop_ids else ids

    def ids_of(self, turn: Turn) -> list[int] | None:
        """Find the ids of a turn; None if none are read as it. What it says is no special token."""
        ids: list[int] = []
        if (pieces := self.speech.write(turn)) is None:
            return None
        for part in self._parts(pieces):
            if isinstance(part, int):
                ids.append(part)
                continue
            spelled = self.encode(self._anchor, part)
            if spelled is None or self.special_ids.intersection(spelled):
                return None
            ids += spelled
        same = self.turn_of(ids) == turn and not self.stop_ids.intersection(ids)
        return ids if same else None

    def observed_ids(self, observations: Sequence[Observation]) -> np.ndarray:
        """Make int32 ids of what stands between two turns. A peer's text is no special token."""
        return self._observed(tuple(observations))

    def _spell_observed(self, observations: tuple[Observation, ...]) -> np.ndarray:
        ids: list[int] = []
        first, *rest = self.speech.heard(observations)
        # Behind the stop token, which may take the space.
        for part in self._parts([self._decode([self.stop_id]) + first, *rest])[2:]:
            if isinstance(part, int):
                ids.append(part)
            else:
                # What cannot be spelled exactly is heard nearly so.
                spelled = self.encode(self._anchor, part) or [*self._spellings(part)][-1]
                ids += [id for id in spelled if id not in self.special_ids]
        found = np.array(ids, np.int32)
        found.setflags(write=False)  # it is kept
        return found

    def _parts(self, pieces: Sequence[str]) -> list[Any]:
        """Part pieces at special tokens, some of which take the space beside them."""
        parts, added = segments(pieces, self._special), self.tokenizer.added_tokens_decoder
        for at in range(1, len(parts), 2):
            token = added.get(parts[at])
            if token and token.lstrip:
                parts[at - 1] = parts[at - 1].rstrip()
            if token and token.rstrip:
                parts[at + 1] = parts[at + 1].lstrip()
        return parts

    @cached_property
    def _anchor(self) -> np.ndarray:
        return np.array(self._encode(ANCHOR), np.int32)

    @cached_property
    def _special(self) -> dict[str, int]:
        return {self._decode([id]): id for id in self.special_ids | self.stop_ids}

    @cached_property
    def _marks(self) -> frozenset[int]:
        return self.speech.marks(self._special)

    def _encode(self, text: str) -> list[int]:
        how = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        return list(self.tokenizer(text, **how)["input_ids"])

    def _decode_behind(self, prompt_P: np.ndarray, ids: Sequence[int]) -> str | None:
        """Find what ``ids`` add to the text of the prompt's end; None if they change it."""
        tail = [int(id) for id in prompt_P[-TAIL:]]
        before, whole = self._decode(tail), self._decode([*tail, *ids])
        return whole[len(before) :] if whole.startswith(before) else None

    def _decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        how = {"skip_special_tokens": skip_special, "clean_up_tokenization_spaces": False}
        return str(self.tokenizer.decode(list(ids), **how))
