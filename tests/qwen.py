"""Folders that stand for the models that the paper trains: their sizes, and no weights.

Sources: arXiv:2412.15115, table 1; Qwen2.5-Coder has the same shapes (arXiv:2409.12186).
"""

from copy import deepcopy

from transformers import Qwen2Config

import tiny

WIDTHS = {"0.5B": (896, 24, 14, 4864), "1.5B": (1536, 28, 12, 8960), "3B": (2048, 36, 16, 11008)}
"""Hidden size, layers, heads, and the size between them."""


def config(size):
    hidden, layers, heads, between = WIDTHS[size]
    return Qwen2Config(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=2, intermediate_size=between, vocab_size=151936,
        tie_word_embeddings=True, max_position_embeddings=32768,
    )  # fmt: skip


def save(folder):
    """Write them where their names on the Hub lead to from ``folder``."""
    tokenizer = deepcopy(tiny.tokenizer())
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    for size in WIDTHS:
        for name in (f"Qwen2.5-{size}", f"Qwen2.5-Coder-{size}"):
            config(size).save_pretrained(folder / "Qwen" / name)
            tokenizer.save_pretrained(folder / "Qwen" / name)
            (folder / "Qwen" / name / "model.safetensors").touch()
