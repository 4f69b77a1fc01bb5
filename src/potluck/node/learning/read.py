"""Reading: a completion of any author as a row of this node's model.

All that depends on a tokenizer is here: the prompt's template, ids of the same tokenizer or text
of any other, special tokens, lengths, the stop token. A completion that cannot be read exactly is
left out, and counted with its reason.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from potluck.config import SamplingConfig
from potluck.model import LanguageModel
from potluck.types import Completion, Problem, Row

UnreadReason = Literal[
    "no log-probabilities", "no text", "unknown token", "inexact text", "special token",
    "stop token", "too long",
]  # fmt: skip
"""Why a completion cannot be read.

    no log-probabilities  the method reads them, and its author told none, or of another tokenizer
    no text               it is ids of another tokenizer, which no text says exactly
    unknown token         an id that this model has not
    inexact text          no ids of this tokenizer decode to the text; or it came with ids of this
                          tokenizer that say another one
    special token         its text would be a special token here
    stop token            it ends otherwise than it says, or has a stop token within
    too long              more tokens than max_new_tokens (a text may have more), or with its
                          prompt than max_total_tokens or than the model has positions
"""


def read(
    completion: Completion,
    problem: Problem,
    model: LanguageModel,
    limits: SamplingConfig,
    *,
    needs_logp: bool = False,
) -> Row | UnreadReason:
    """Read a completion with the model's tokenizer.

    Ids of the model's own tokenizer are taken as they are; ``end`` decides what a completion may
    earn, so they must confirm it: "stop" is a stop token at the end, and there is none anywhere
    else. A text beside them must be what they say: nodes of other tokenizers read that. A text
    alone is encoded, exactly, and the model's own stop token put behind it if it ended
    by one. No log-probability of another tokenizer's tokens is kept, as its tokens are others.
    ``needs_logp``: the method reads the author's log-probabilities.
    """
    prompt_P = model.prompt(problem)
    most = limits.max_total_tokens  # and no position that the model has not
    budget = min(most, model.context or most) - len(prompt_P)
    is_foreign = completion.tokenizer not in (b"", model.tokenizer_digest)
    if as_text := is_foreign or not len(completion.token_T):
        if needs_logp:
            return "no log-probabilities"
        if completion.text is None:
            return "no text"
        ids = model.encode(prompt_P, completion.text)
        if ids is None:
            return "inexact text"
        if model.special_ids.intersection(ids):
            return "special token"
        if completion.end == "stop":
            ids = [*ids, model.stop_id]
        if not ids:
            return "stop token"
        token_T = np.array(ids, np.int32)
        completion = replace(completion, token_T=token_T, logp_T=None, tokenizer=b"")
    else:  # A text that others were to write in max_new_tokens of theirs may have more here.
        budget = min(budget, limits.max_new_tokens)
    token_T = completion.token_T
    stops_T = np.isin(token_T, list(model.stop_ids))
    if not (token_T < model.vocabulary).all():
        return "unknown token"
    if stops_T[:-1].any() or bool(stops_T[-1]) != (completion.end == "stop"):
        return "stop token"
    if len(token_T) > budget:
        return "too long"
    if needs_logp and completion.logp_T is None:
        return "no log-probabilities"
    if not (as_text or completion.text in (None, model.said(completion, problem))):
        return "inexact text"
    return Row(completion, prompt_P, token_T, model.text(token_T))
