"""What a model reads when it scores completions: each row with its prompt, or a prompt once for all
rows that share it.

    whole rows       [prompt, own part], a pass over all of them
    shared prompts   a pass over the prompts, whose keys and values are repeated for their rows, and
                     a pass over the rows' own parts behind them

Both give the same log-probabilities, and the same gradient: that of a shared prompt is the sum of
those that its rows would have (PrefixGrouper, arXiv:2506.05433, which packs a group into one
sequence with a mask of its own; here the model's own cache does it, so any attention that can be
continued can be shared, windows included).

Shape letters, beside those of ``types.py``: Q prompts, S columns of what is read, X positions that
predict a completion's token, D numbers of a hidden state.
"""

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.utils.generic import ModelOutput

from potluck.types import Observed

Ids = Sequence[np.ndarray]

WORTH_SHARING = 0.9
"""Share of the tokens of whole rows up to which reading prompts once is faster: two passes cost
more than one, and prompts of unlike length need a mask."""
KEPT_OF_A_REPEATED_TOKEN = 0.15
"""Keys and values of a token, as a share of all its activations that a backward pass needs: about
.1 where a model has as many heads for keys as for queries, less where it has fewer."""
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


def read_tokens(prompts: Ids, tokens: Ids, observed: Sequence[Observed]) -> tuple[int, int]:
    """Count the tokens that a pass over these rows reads, padding included: of whole rows, and with
    each prompt read once."""
    own = [
        len(token_T) - 1 + sum(len(ids) for _, ids in heard)
        for token_T, heard in zip(tokens, observed, strict=True)
    ]
    whole = max(len(prompt_P) + size for prompt_P, size in zip(prompts, own, strict=True))
    longest = max(map(len, prompts))
    return len(prompts) * whole, len(grouped(prompts)) * longest + len(prompts) * max(own)


def tokens_held(rows: int, prompts: int, longest_prompt: int, longest_own: int) -> int:
    """Count the tokens whose activations a pass over so many rows keeps at most; ``prompts`` is the
    number of their prompts. Keys and values of a prompt are kept for each of its rows."""
    whole = rows * (longest_prompt + longest_own)
    shared = prompts * longest_prompt + rows * longest_own
    if not pays(whole, shared):
        return whole
    return shared + math.ceil(KEPT_OF_A_REPEATED_TOKEN * rows * longest_prompt)


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
    layers = DynamicCache(config=network.config).layers
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
class SharedPrompts:
    """Prompts, each for several rows, and the rows' own parts.

    Prompts are padded at the start, so that all end in one column; their padding is masked, and
    counts for no position. Own parts are padded at the end, as whole rows are.
    """

    order: Sequence[int]
    """Places of the rows, as they are read, in those that were given: those of a prompt together.
    """
    prompt_QP: Tensor
    real_QP: Tensor
    """False on padding."""
    count_Q: Tensor
    """Number of rows of each prompt."""
    token_MS: Tensor
    """What each row reads behind its prompt; no column if each predicts but one token."""
    predicts_MS: Tensor
    """True where the next token is scored; a column more than ``token_MS``, as the first is for the
    prompt's last token."""

    @classmethod
    def of(
        cls,
        prompts: Ids,
        tokens: Ids,
        observed: Sequence[Observed],
        device: torch.device,
        *,
        least_columns: int = 0,
    ) -> "SharedPrompts":
        """Put the rows of equal prompts together; ``least_columns`` is the width of ``token_MS`` at
        least."""
        groups = grouped(prompts)
        order = [row for rows in groups for row in rows]
        inputs = [own_input(tokens[row], observed[row]) for row in order]
        prompt_of_group = [prompts[rows[0]] for rows in groups]
        length_Q1 = torch.tensor([[len(prompt_P)] for prompt_P in prompt_of_group])
        longest = int(length_Q1.max())
        real_QP = torch.arange(longest) >= longest - length_Q1
        prompt_QP = torch.stack([_from_the_end(prompt_P, longest) for prompt_P in prompt_of_group])
        token_MS = _padded([own_S for own_S, _ in inputs], device, least_columns=least_columns)
        return cls(
            order=order,
            prompt_QP=prompt_QP.to(device),
            real_QP=real_QP.to(device),
            count_Q=torch.tensor([len(rows) for rows in groups], device=device),
            token_MS=token_MS,
            predicts_MS=_marked([place_T for _, place_T in inputs], token_MS.shape[1] + 1, device),
        )

    def hidden(self, network: PreTrainedModel) -> tuple[Tensor, type[ModelOutput]]:
        """Compute hidden_XD, the last hidden states in the places that predict; and the kind of
        what the body returns."""
        cache = DynamicCache(config=network.config)
        body: Any = network.get_decoder()
        takes_positions = "position_ids" in inspect.signature(body.forward).parameters

        def read(token_NS: Tensor, real_NC: Tensor) -> Any:
            # Prompts of one length need no mask, which is the fast path of every attention kernel.
            masked = {}
            if not is_even:
                masked["attention_mask"] = real_NC
                if takes_positions:
                    place_NC = real_NC.cumsum(dim=1) - 1
                    masked["position_ids"] = place_NC[:, -token_NS.shape[1] :].clamp(min=0)
            given = {"past_key_values": cache, "use_cache": True, **masked}
            return body(input_ids=token_NS, **given)

        is_even = bool(self.real_QP.all())
        out = read(self.prompt_QP, self.real_QP)
        hidden_MSD = out.last_hidden_state[:, -1:].repeat_interleave(self.count_Q, dim=0)
        if self.token_MS.shape[1]:
            # Its annotation says int, but a count for each row is what it hands on to torch.
            cache.batch_repeat_interleave(self.count_Q)  # type: ignore[arg-type]
            real_MP = self.real_QP.repeat_interleave(self.count_Q, dim=0)
            real_MC = torch.cat([real_MP, torch.ones_like(self.token_MS, dtype=torch.bool)], dim=1)
            behind = read(self.token_MS, real_MC).last_hidden_state
            hidden_MSD = torch.cat([hidden_MSD, behind], dim=1)
        return hidden_MSD[self.predicts_MS], type(out)


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
