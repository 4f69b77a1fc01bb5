"""Six tokenizers as models have them, and texts that are hard to spell; all of our own making."""

import functools
import json
import random
import string

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordPieceTrainer
from transformers import PreTrainedTokenizerFast

import tiny

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Rule of Qwen2's pre-tokenizer: each digit by itself."""
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
"""Rule of Llama 3's: up to three digits together."""
PLAIN = (
    "the answer is so we add carry Let therefore hence Total sum of all apples each costs "
    "dollars Then multiply by two and subtract x y z frac sqrt cdot boxed equals step first "
    "second"
)
WORDS = PLAIN.split()
LATEX = (r"\frac{1}{2}", r"\boxed{42}", "$x^2$", r"\sqrt{3}\,", r"\(a \cdot b\)", "\\\\", "{}_i^2")
UNICODE = (
    "é", "e\u0301", "ß", "İ", "ﬁ", "Ω", "Å", "日本", "한글", "नमस्ते", "🙂", "👩‍👩‍👧", "🇫🇷", "½", "①",
    "\u200b", "\u202e", "\u00a0", "\u2028", "\u3000", "\x00", "\x1b[31m", "\ufeff", "\ufffd",
)  # fmt: skip
SPACES = (" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "")
SPECIAL = ("<|im_end|>", "<eos>", "<think>", "</think>", "<unk>", "▁", "##ing", "Ġ", "<0x0A>")


def text(lot):
    """A text of up to 40 pieces of all kinds."""
    kinds = (WORDS, LATEX, UNICODE, SPACES, SPACES, SPECIAL)
    pieces = []
    for _ in range(lot.randint(0, 40)):
        kind = lot.choices(kinds, (6, 2, 1, 6, 3, 0.5))[0]
        pieces.append(lot.choice(kind))
        if lot.random() < 0.3:
            pieces.append(str(lot.randint(0, 10 ** lot.randint(1, 6))))
    return "".join(pieces)


def plain_text(lot):
    """Words and numbers, as a model would write them."""
    return " ".join(lot.choice((*WORDS, str(lot.randint(0, 999)))) for _ in range(12)) + "\n"


TRAINED = {
    "vocab_size": 500, "special_tokens": ["<pad>", "<eos>", "<unk>"], "show_progress": False,
}  # fmt: skip


def _lessons():
    lot = random.Random("lessons")
    return [text(lot) if lot.random() < 0.3 else plain_text(lot) for _ in range(2000)]


def _fast(backend, **special):
    special = {"eos_token": "<eos>", "pad_token": "<pad>"} | special
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def _byte_level(rule):
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(rule), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=700, special_tokens=["<pad>", "<eos>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    backend.train_from_iterator(_lessons(), trainer)
    return backend


def _sentencepiece():
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )  # fmt: skip
    special = ["<pad>", "<eos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    lot = random.Random("plain")  # what is rare is spelled in bytes
    backend.train_from_iterator([plain_text(lot) for _ in range(500)], trainer)
    # The bytes are no special tokens, as they are part of texts.
    fields = json.loads(backend.to_str())
    fields["added_tokens"] = fields["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(fields))


def _unigram():
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    backend.train_from_iterator(_lessons(), UnigramTrainer(unk_token="<unk>", **TRAINED))
    return backend


def _lower_casing():
    backend = Tokenizer(models.WordPiece(unk_token="<unk>"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=False)
    backend.train_from_iterator(_lessons(), WordPieceTrainer(**TRAINED))
    return backend


def _thinking():
    backend = _byte_level(QWEN2)
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    backend.add_tokens([AddedToken(tag, special=False) for tag in ("<think>", "</think>")])
    return backend


@functools.cache
def tokenizers():
    """By name: each as transformers loads it."""
    unknown = {"unk_token": "<unk>"}
    return {
        "byte-level, single digits": _fast(_byte_level(QWEN2)),
        "byte-level, three digits": _fast(_byte_level(LLAMA3)),
        "SentencePiece-like, bytes": _fast(_sentencepiece(), **unknown),
        "unigram": _fast(_unigram(), **unknown),
        "lower-casing": _fast(_lower_casing(), **unknown),
        "think tags": _fast(
            _thinking(), eos_token="<|im_end|>", extra_special_tokens=["<|im_start|>"]
        ),
    }


NAMES = (
    "byte-level, single digits", "byte-level, three digits", "SentencePiece-like, bytes",
    "unigram", "lower-casing", "think tags",
)  # fmt: skip


@functools.cache
def policy(name):
    """A model of random weights that has one of the tokenizers."""
    torch.manual_seed(0)
    tokenizer = tokenizers()[name]
    return tiny.qwen2(
        tokenizer, vocab_size=len(tokenizer), num_hidden_layers=1, max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip


@functools.cache
def pairs():
    """A tokenizer of the alphabet of ``tiny``, in which two letters or digits are one token."""
    one = [*string.ascii_lowercase, *string.digits, *"+=#"]
    both = [(a, b) for kind in (one[:26], one[26:36]) for a in kind for b in kind]
    tokens = ["<pad>", "<eos>", *one, *map("".join, both)]
    backend = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, both))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(["<pad>", "<eos>"])
    return _fast(backend)


def save_pairs(folder, seed=0, sharpness=20.0):
    """A model folder with that tokenizer, as ``tiny.save`` makes them; returns its path."""
    torch.manual_seed(seed)
    ids = {"vocab_size": len(pairs()), "eos_token_id": 1, "bos_token_id": None}
    return tiny.saved(tiny.qwen2(pairs(), sharpness=sharpness, **ids), folder)
