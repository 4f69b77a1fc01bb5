"""Makes untrained models for GSM8K: python scripts/make_gsm8k_models.py DATA_FOLDER OUT_FOLDER

Two pairs: gsm8k-small and -large, whose end of text is ``<|im_end|>``, as in chat models; and
qwen-small and -large, with the proportions of Qwen2.5-1.5B and -3B at a sixteenth of their
width, whose end of text is ``<|endoftext|>``, as in those base models. For the latter see
``recipes/README.md``. And gsm8k-llama, another family: its tokens have up to three digits, as in
Llama 3, and its template is that model's.

They check that everything around a real run works, in seconds and without a download:
a byte-level tokenizer, a chat template, two sizes. They know nothing; use them with
``task.reward = "hash"``. Three traits of real models are kept on purpose: more rows of
logits than the tokenizer has tokens, two stop tokens, and a padding token that is one
of them. ``<think>`` and ``<answer>`` are plain text to the tokenizer, as they are to Qwen2.5.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
LLAMA_END_OF_TEXT, LLAMA_END = "<|end_of_text|>", "<|eot_id|>"
LLAMA_BEGIN, LLAMA_ROLE = "<|begin_of_text|>", ("<|start_header_id|>", "<|end_header_id|>")
SPECIAL: dict[str, list[str]] = {
    "qwen2": [END_OF_TEXT, START, END],
    "llama3": [LLAMA_END_OF_TEXT, LLAMA_BEGIN, *LLAMA_ROLE, LLAMA_END],
}
"""Special tokens of each family; the first pads."""
VOCABULARY_SIZE = 2_000
Family = Literal["qwen2", "llama3"]
FAMILIES: dict[Family, tuple[Any, Any]] = {
    "qwen2": (Qwen2ForCausalLM, Qwen2Config),
    "llama3": (LlamaForCausalLM, LlamaConfig),
}


@dataclass(frozen=True, slots=True)
class Shape:
    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    ends: tuple[str, ...]
    """Tokens that end a text; the first is the tokenizer's."""
    family: Family = "qwen2"


SHAPES = {
    "gsm8k-small": Shape(64, 2, 4, 256, (END, END_OF_TEXT)),
    "gsm8k-large": Shape(96, 3, 4, 384, (END, END_OF_TEXT)),
    "gsm8k-llama": Shape(32, 2, 4, 128, (LLAMA_END, LLAMA_END_OF_TEXT), "llama3"),
    "qwen-small": Shape(96, 2, 12, 560, (END_OF_TEXT,)),
    "qwen-large": Shape(128, 3, 16, 688, (END_OF_TEXT,)),
}
DIGITS = {"qwen2": r"\p{N}", "llama3": r"\p{N}{1,3}"}
# Qwen2's: AutoTokenizer sets it (and NFC) for every Qwen2 model, whatever the folder says,
# so a tokenizer trained on other pieces would be another one when it is loaded.
PIECE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = """\
{%- if messages[0]['role'] != 'system' -%}
{{ '<|im_start|>system\\nYou answer questions.<|im_end|>\\n' }}
{%- endif -%}
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""


LLAMA_TEMPLATE = """\
{{- bos_token }}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
{{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif -%}
"""


def texts(file: Path) -> Iterator[str]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield row["question"]
            yield row["answer"]


def byte_level(texts: Iterable[str], family: Family, trainer: trainers.BpeTrainer) -> Tokenizer:
    """Train a byte-level BPE with the family's pieces."""
    backend = Tokenizer(models.BPE())
    if family == "qwen2":
        backend.normalizer = normalizers.NFC()
    piece = Regex(PIECE.replace("DIGITS", DIGITS[family]))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(piece, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(texts, trainer)
    return backend


def trainer_of(family: Family) -> trainers.BpeTrainer:
    return trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=SPECIAL[family],
        # Every byte, so that any text can be written and none needs an unknown token.
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )


def with_end(backend: Tokenizer, shape: Shape) -> PreTrainedTokenizerFast:
    of_llama = shape.family == "llama3"
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        eos_token=shape.ends[0],
        pad_token=SPECIAL[shape.family][0],
        chat_template=LLAMA_TEMPLATE if of_llama else CHAT_TEMPLATE,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )
    if of_llama:
        tokenizer.bos_token = LLAMA_BEGIN
    return tokenizer


def untrained(shape: Shape, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    torch.manual_seed(0)
    stop = tokenizer.convert_tokens_to_ids(list(shape.ends))
    family, config = FAMILIES[shape.family]
    model: PreTrainedModel = family(
        config(
            # The next multiple of 128, and never the tokenizer's own size.
            vocab_size=(len(tokenizer) // 128 + 1) * 128,
            hidden_size=shape.hidden_size,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=2,
            intermediate_size=shape.intermediate_size,
            tie_word_embeddings=True,
            max_position_embeddings=2048,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    model.generation_config.eos_token_id = stop
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder that holds train.jsonl of GSM8K")
    parser.add_argument("out", type=Path, help=f"gets the folders {', '.join(SHAPES)}")
    arguments = parser.parse_args()
    file = arguments.data / "train.jsonl"
    if not file.is_file():
        sys.exit(f"there is no file {file}; expected the folder with train.jsonl of GSM8K")
    torch.set_num_threads(1)
    backends = {its: byte_level(texts(file), its, trainer_of(its)) for its in FAMILIES}
    for name, shape in SHAPES.items():
        tokenizer = with_end(backends[shape.family], shape)
        model = untrained(shape, tokenizer)
        model.save_pretrained(arguments.out / name)
        tokenizer.save_pretrained(arguments.out / name)
        print(f"{arguments.out / name}: {model.num_parameters():,} weights")


if __name__ == "__main__":
    main()
