"""Makes untrained models for GSM8K: python scripts/make_gsm8k_models.py DATA_FOLDER OUT_FOLDER

Two pairs: gsm8k-small and -large, whose end of text is ``<|im_end|>``, as in chat models; and
qwen-small and -large, with the proportions of Qwen2.5-1.5B and -3B at a sixteenth of their
width, whose end of text is ``<|endoftext|>``, as in those base models. For the latter see
``recipes/README.md``.

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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VOCABULARY_SIZE = 2_000


@dataclass(frozen=True, slots=True)
class Shape:
    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    ends: tuple[str, ...]
    """Tokens that end a text; the first is the tokenizer's."""


SHAPES = {
    "gsm8k-small": Shape(64, 2, 4, 256, (END, END_OF_TEXT)),
    "gsm8k-large": Shape(96, 3, 4, 384, (END, END_OF_TEXT)),
    "qwen-small": Shape(96, 2, 12, 560, (END_OF_TEXT,)),
    "qwen-large": Shape(128, 3, 16, 688, (END_OF_TEXT,)),
}
# Qwen2's: AutoTokenizer sets it (and NFC) for every Qwen2 model, whatever the folder says,
# so a tokenizer trained on other pieces would be another one when it is loaded.
PIECE = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
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


def texts(file: Path) -> Iterator[str]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield row["question"]
            yield row["answer"]


def byte_level(file: Path) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(PIECE, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[END_OF_TEXT, START, END],
        # Every byte, so that any text can be written and none needs an unknown token.
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts(file), trainer)
    return backend


def with_end(backend: Tokenizer, end: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        eos_token=end,
        pad_token=END_OF_TEXT,
        chat_template=CHAT_TEMPLATE,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )


def untrained(shape: Shape, tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    stop = tokenizer.convert_tokens_to_ids(list(shape.ends))
    model = Qwen2ForCausalLM(
        Qwen2Config(
            # The next multiple of 128, and never the tokenizer's own size.
            vocab_size=(len(tokenizer) // 128 + 1) * 128,
            hidden_size=shape.hidden_size,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=2,
            intermediate_size=shape.intermediate_size,
            tie_word_embeddings=True,
            max_position_embeddings=2048,
            bos_token_id=None,
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
    backend = byte_level(file)
    for name, shape in SHAPES.items():
        tokenizer = with_end(backend, shape.ends[0])
        model = untrained(shape, tokenizer)
        model.save_pretrained(arguments.out / name)
        tokenizer.save_pretrained(arguments.out / name)
        print(f"{arguments.out / name}: {model.num_parameters():,} weights")


if __name__ == "__main__":
    main()
