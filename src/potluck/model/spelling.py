"""Text behind a prompt, in a tokenizer's ids and back, exactly or not at all.

Ids are a text's *continuation* of a prompt: the text is what a decoder adds to the prompt's end,
so the space that some tokenizers put before a first word is seen, and not guessed. Text of a peer
spells nothing but text: "<|im_end|>" in it becomes the ids of its letters, or is refused.
"""

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

TAIL = 4
"""Ids of a prompt's end, behind which a continuation is decoded."""
ANCHOR = "\n"
"""Text before a continuation, where one that is encoded alone would get a space in front."""
UNKNOWN = "\ufffd"
"""Sign that a decoder writes where ids are no whole character."""


def special_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """List the ids of tokens that no text may become."""
    added = tokenizer.added_tokens_decoder.items()
    return frozenset(tokenizer.all_special_ids) | {id for id, token in added if token.special}


def encode_behind(
    tokenizer: PreTrainedTokenizerBase, prompt_P: np.ndarray, text: str
) -> list[int] | None:
    """Find the ids of ``text`` behind a prompt; None if none decode to it.

    They are the tokenizer's own spelling of it, without special tokens.
    """
    alone = _encode(tokenizer, text)
    if _decode_behind(tokenizer, prompt_P, alone) == text:
        return alone
    anchor, behind = _encode(tokenizer, ANCHOR), _encode(tokenizer, ANCHOR + text)
    ids = behind[len(anchor) :]
    if behind[: len(anchor)] == anchor and _decode_behind(tokenizer, prompt_P, ids) == text:
        return ids
    return None


def text_behind(
    tokenizer: PreTrainedTokenizerBase, prompt_P: np.ndarray, ids: Sequence[int]
) -> str | None:
    """Find the text that ``ids`` are behind a prompt; None if it would not say all that they do:
    they have a special token, or bytes that are no whole character."""
    if special_ids(tokenizer).intersection(ids):
        return None
    text = _decode_behind(tokenizer, prompt_P, ids)
    if text is None or (UNKNOWN in text and encode_behind(tokenizer, prompt_P, text) != list(ids)):
        return None
    return text


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(
        tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)[
            "input_ids"
        ]
    )


def _decode_behind(
    tokenizer: PreTrainedTokenizerBase, prompt_P: np.ndarray, ids: Sequence[int]
) -> str | None:
    """Find what ``ids`` add to the text of the prompt's end; None if they change it."""
    tail = [int(id) for id in prompt_P[-TAIL:]]
    before, whole = (_decode(tokenizer, [*tail, *more]) for more in ([], ids))
    return whole[len(before) :] if whole.startswith(before) else None


def _decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    return str(
        tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    )
