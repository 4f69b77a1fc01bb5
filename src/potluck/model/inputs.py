"""Inputs of a model that scores completions: each row with its prompt, or a prompt once for all
rows that share it.

    whole rows       [prompt, own part], a pass over all of them
    shared prompts   a pass over the prompts, whose keys and values are repeated for their rows, and
                     a pass over the rows' own parts behind them

Both give the same log-probabilities, and the same gradient: that of a shared prompt is the sum of
those that its rows would have (PrefixGrouper, arXiv:2506.05433, which packs a group into one
sequence with a mask of its own; here the model's own cache does it, so any attention that can be
continued can be shared, windows included). Layers that compute their activations twice have the
cache both times (``repeatable.py``).

Shape letters, beside those of ``types.py``: Q prompts, S columns of what is read, X positions that
predict a completion's token, D numbers of a hidden state.
"""

import inspect
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.utils.generic import ModelOutput

from potluck.model.repeatable import RepeatableCache, apart, computed_twice
from potluck.types import Observed

Ids = Sequence[np.ndarray]

WORTH_SHARING = 0.9
"""Share of the tokens of whole rows up to which reading prompts once is faster: two passes cost
more than one, and prompts of unlike length need a mask."""
KEPT_OF_A_REPEATED_TOKEN = 0.15
"""Keys and values of a token, as a share of all its activations that a backward pass needs: about
.1 where a model has as many heads for keys as for queries, less where it has fewer."""
KEPT_OF_A_PROMPT = 3
"""Number of hidden states that are kept of a prompt's token where layers compute their activations
twice: its own between layers, its keys and values, and their gradients. With grouped heads each of
these four is at most half as wide; with as many heads for keys as for queries it may be as wide,
which is within what .15 above and one layer's activations leave."""
TOKENS_OF_A_PASS = 64
"""Tokens of padding that are worth a pass of their own."""
ROPES_BY_LENGTH = ("longrope", "dynamic")
"""Rotary embeddings that turn all positions by the length of the pass: a prompt that is read alone
gets other keys than one that is read with its completion."""


def model_input(
    prompt_P: np.ndarray, token_T: np.ndarray, observed: Observed
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the model reads of a completion, and place_T: where in it each token is
    predicted. The last token of a completion predicts nothing that counts."""
    own_S, place_T = own_input(token_T, observed)
    return np.concatenate([prompt_P, own_S]), place_T + len(prompt_P) - 1


def own_input(token_T: np.ndarray, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
    """Return what the model reads of a completion behind its prompt, and place_T: the place behind
    which each token is predicted, 0 for the prompt's last token."""
    place_T = np.arange(len(token_T))
    parts, done = list[np.ndarray](), 0
    for at, heard in observed:
        parts += [token_T[done:at], heard]
        place_T[at:] += len(heard)
        done = at
    return np.concatenate([*parts, token_T[done:-1]]), place_T


def read_tokens(
    prompts: Ids, tokens: Ids, observed: Sequence[Observed], *, in_one_pass: bool = False
) -> tuple[int, int]:
    """Count the tokens that a pass over these rows reads, padding included: of whole rows, and with
    each prompt read once, and then the rows' own parts (``in_one_pass``: in one)."""
    own = own_lengths(tokens, observed)
    whole = max(len(prompt_P) + size for prompt_P, size in zip(prompts, own, strict=True))
    cut = [max(own) + 1] if in_one_pass else lengths_of_passes(own)
    behind = sum(min(length for length in cut if length > size) - 1 for size in own)
    return len(own) * whole, len(grouped(prompts)) * max(map(len, prompts)) + behind


def own_lengths(tokens: Ids, observed: Sequence[Observed]) -> list[int]:
    """Count the tokens that each row reads behind its prompt."""
    return [
        len(token_T) - 1 + sum(len(ids) for _, ids in heard)
        for token_T, heard in zip(tokens, observed, strict=True)
    ]


def tokens_held(
    rows: int,
    prompts: int,
    longest_prompt: int,
    longest_own: int,
    *,
    computes_twice: bool = False,
) -> int:
    """Count the tokens whose activations a pass over so many rows keeps at most; ``prompts`` is the
    number of their prompts. Keys and values of a prompt are kept for each of its rows; in layers
    that compute twice only those of the layer that does, and of each prompt once."""
    whole = rows * (longest_prompt + longest_own)
    shared = prompts * longest_prompt + rows * longest_own
    if not pays(whole, shared):
        return whole
    more = (KEPT_OF_A_PROMPT - 1) * prompts * longest_prompt if computes_twice else 0
    return shared + more + math.ceil(KEPT_OF_A_REPEATED_TOKEN * rows * longest_prompt)


def pays(whole: int, shared: int) -> bool:
    """Tell whether to read prompts once, by the numbers of ``read_tokens``."""
    return shared <= WORTH_SHARING * whole


def can_share_prompts(network: PreTrainedModel) -> bool:
    """Tell whether a prompt that the network has read once can be continued by several rows: its
    layers keep keys and values, of all positions or of a window, and nothing else."""
    body: Any = network.get_decoder()
    if "past_key_values" not in inspect.signature(body.forward).parameters:
        return False
    text: Any = network.config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    if (rope.get("rope_type") or rope.get("type")) in ROPES_BY_LENGTH:
        return False
    try:
        layers = DynamicCache(config=network.config).layers
    except Exception:  # each model's configuration is code of its own
        return False
    return not getattr(network, "_is_stateful", False) and all(
        type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers
    )


@dataclass(frozen=True, slots=True, eq=False)
class WholeRows:
    """Rows, each with its prompt.

    They are padded at the end, which causal attention never sees, so no attention mask is needed
    and the pad id means nothing.
    """

    order: Sequence[int]
    """Places of the rows, as they are read, in those that were given."""
    token_MS: Tensor
    predicts_MS: Tensor
    """True in the X positions whose next tokens are scored."""

    @classmethod
    def of(
        cls, prompts: Ids, tokens: Ids, observed: Sequence[Observed], device: torch.device
    ) -> "WholeRows":
        given = zip(prompts, tokens, observed, strict=True)
        inputs = [model_input(*each) for each in given]
        token_MS = _padded([input_S for input_S, _ in inputs], device)
        predicts_MS = _marked([place_T for _, place_T in inputs], token_MS.shape[1], device)
        return cls(range(len(tokens)), token_MS, predicts_MS)

    def hidden(self, network: PreTrainedModel) -> tuple[Tensor, type[ModelOutput]]:
        """Compute hidden_XD, the last hidden states in the places that predict; and the kind of
        what the body returns."""
        out = network.get_decoder()(input_ids=self.token_MS, use_cache=False)
        return out.last_hidden_state[self.predicts_MS], type(out)


@dataclass(frozen=True, slots=True, eq=False)
class OwnParts:
    """Parts of some rows behind their prompts, read in one pass; padded at the end."""

    prompt_M: Tensor
    """Place of each row's prompt among the prompts."""
    token_MS: Tensor
    """No column if each predicts but one token, which the prompt does."""
    predicts_MS: Tensor
    """True where the next token is scored; a column more than ``token_MS``, as the first is for the
    prompt's last token."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedPrompts:
    """Prompts, each for several rows, and the rows' own parts.

    Prompts are padded at the start, so that all end in one column; their padding is masked, and
    counts for no position. Rows of unlike length are read in passes of their own, as they cannot be
    sorted into micro-batches by their length: a prompt's rows stay together.
    """

    order: Sequence[int]
    """Places of the rows, as they are read, in those that were given."""
    prompt_QP: Tensor
    real_QP: Tensor
    """False on padding."""
    passes: Sequence[OwnParts]
    in_one_pass: bool
    """True: all own parts are read in one pass, and have one backward pass with the prompts."""
    computes_twice: bool
    """True: layers compute their activations again in the backward pass."""

    @classmethod
    def of(
        cls,
        prompts: Ids,
        tokens: Ids,
        observed: Sequence[Observed],
        device: torch.device,
        *,
        in_one_pass: bool = False,
        computes_twice: bool = False,
    ) -> "SharedPrompts":
        """Put the rows of equal prompts together. ``in_one_pass``: read all own parts in one, even
        if none has a token to read, as several processes have to pass layers in one order.
        ``computes_twice``: in layers with gradient checkpointing, compute activations twice."""
        groups = grouped(prompts)
        inputs = [own_input(*each) for each in zip(tokens, observed, strict=True)]
        size = [len(own_S) for own_S, _ in inputs]
        cut = [max(size) + 1] if in_one_pass else lengths_of_passes(size)

        order, passes, shortest = list[int](), list[OwnParts](), 0
        for longest in sorted(cut):
            parts = [[row for row in rows if shortest <= size[row] < longest] for rows in groups]
            chosen = [row for rows in parts for row in rows]
            own = [inputs[row][0] for row in chosen]
            token_MS = _padded(own, device, least_columns=int(in_one_pass))
            predicts_MS = _marked([inputs[row][1] for row in chosen], token_MS.shape[1] + 1, device)
            prompt_M = torch.tensor([at for at, rows in enumerate(parts) for _ in rows])
            passes.append(OwnParts(prompt_M.to(device), token_MS, predicts_MS))
            order += chosen
            shortest = longest

        asked = [prompts[rows[0]] for rows in groups]
        length_Q1 = torch.tensor([[len(prompt_P)] for prompt_P in asked])
        columns = int(length_Q1.max())
        return cls(
            order=order,
            prompt_QP=torch.stack([_from_the_end(each, columns) for each in asked]).to(device),
            real_QP=(torch.arange(columns) >= columns - length_Q1).to(device),
            passes=passes,
            in_one_pass=in_one_pass,
            computes_twice=computes_twice,
        )

    def hidden(self, network: PreTrainedModel) -> tuple[Tensor, type[ModelOutput]]:
        """Compute hidden_XD, the last hidden states in the places that predict; and the kind of
        what the body returns."""
        with computed_twice(network) if self.computes_twice else nullcontext():
            prompts = RepeatableCache(network.config)
            out = self._read(network, prompts, self.prompt_QP, self.real_QP)
            last_Q1D = out.last_hidden_state[:, -1:]
            found = [self._behind(network, prompts, last_Q1D, own) for own in self.passes]
        return torch.cat(found), type(out)

    def _behind(
        self, network: PreTrainedModel, prompts: RepeatableCache, last_Q1D: Tensor, own: OwnParts
    ) -> Tensor:
        """Compute hidden_XD of some rows behind the prompts, which the pass with ``prompts`` has
        read."""
        hidden_MSD = last_Q1D.index_select(0, own.prompt_M)
        if own.token_MS.shape[1]:
            real_MP = self.real_QP.index_select(0, own.prompt_M)
            real_MC = torch.cat([real_MP, torch.ones_like(own.token_MS, dtype=torch.bool)], dim=1)

            def read(kept: Sequence[Tensor]) -> Tensor:
                cache = prompts.behind(own.prompt_M, kept)
                found: Tensor = self._read(network, cache, own.token_MS, real_MC).last_hidden_state
                return found

            kept = prompts.kept()
            own_MSD = read(kept) if self.in_one_pass else apart(read, kept)
            hidden_MSD = torch.cat([hidden_MSD, own_MSD], dim=1)
        return hidden_MSD[own.predicts_MS]

    def _read(
        self, network: PreTrainedModel, cache: RepeatableCache, token_NS: Tensor, real_NC: Tensor
    ) -> Any:
        """Read some columns behind those in the cache; ``real_NC`` tells of all which are real."""
        body: Any = network.get_decoder()
        masked = {}
        # Prompts of one length need no mask, which is the fast path of every attention kernel.
        if not self.real_QP.all():
            masked["attention_mask"] = real_NC
            if "position_ids" in inspect.signature(body.forward).parameters:
                place_NC = real_NC.cumsum(dim=1) - 1
                masked["position_ids"] = place_NC[:, -token_NS.shape[1] :].clamp(min=0)
        return body(input_ids=token_NS, past_key_values=cache, use_cache=True, **masked)


def lengths_of_passes(size: Sequence[int]) -> list[int]:
    """Cut rows of these lengths into passes: return of each the length below which its rows are,
    longest first. Each further pass saves at least TOKENS_OF_A_PASS of padding.

    >>> lengths_of_passes([100, 100, 3, 4])
    [101, 5]
    """
    ordered = sorted(size, reverse=True)
    most = ordered[0]

    def saved(at: int) -> int:
        """Padding that rows ``at`` and shorter are without, in a pass of their own."""
        return (len(ordered) - at) * (most - ordered[at])

    best = max(range(len(ordered)), key=saved)
    if saved(best) < TOKENS_OF_A_PASS:
        return [most + 1]
    # Those before it are as long as it at least, and may be cut once more.
    longer, shorter = ordered[:best], ordered[best:]
    return [*lengths_of_passes(longer), *lengths_of_passes(shorter)]


Inputs = WholeRows | SharedPrompts


def grouped(prompts: Ids) -> list[list[int]]:
    """List the rows of each prompt, in the order in which the prompts come."""
    groups = dict[bytes, list[int]]()
    for row, prompt_P in enumerate(prompts):
        groups.setdefault(prompt_P.tobytes(), []).append(row)
    return list(groups.values())


def _from_the_end(prompt_P: np.ndarray, columns: int) -> Tensor:
    """Pad a prompt at its start, with its first token: the embedding of a pad token is often 0,
    whose gradient some layers cannot compute where they see nothing else."""
    padded = np.pad(prompt_P, (columns - len(prompt_P), 0), mode="edge")
    return torch.from_numpy(padded).long()


def _padded(rows: Ids, device: torch.device, *, least_columns: int = 0) -> Tensor:
    each = [torch.from_numpy(ids).long() for ids in rows]
    token_NS = pad_sequence(each, batch_first=True)
    missing = max(0, least_columns - token_NS.shape[1])
    return torch.nn.functional.pad(token_NS, (0, missing)).to(device)


def _marked(places: Ids, columns: int, device: torch.device) -> Tensor:
    marked_MS = np.zeros((len(places), columns), bool)
    for marked_S, place_T in zip(marked_MS, places, strict=True):
        marked_S[place_T] = True
    return torch.from_numpy(marked_MS).to(device)
