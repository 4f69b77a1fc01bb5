"""Tiny real models: a Qwen2 of a few thousand weights, a token for each letter; and a recipe."""

import copy
import functools
import string

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GPT2Config,
    Lfm2Config,
    Lfm2MoeConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
)

from potluck.config import from_tree
from potluck.model import LanguageModel
from potluck.objective.methods import METHODS, ObjectiveConfig

PAD, BEGIN, STOP = 0, 1, 2
VOCABULARY = 3 + 26 + 10 + 3
"""Ids of the tokenizer; the embedding has EXTRA more, which mean nothing."""
EXTRA = 6

SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "intermediate_size": 32, "vocab_size": VOCABULARY + EXTRA, "max_position_embeddings": 64,
    "pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": STOP,
}  # fmt: skip
ARCHITECTURES = [
    LlamaConfig(**SMALL),
    MistralConfig(**SMALL, sliding_window=8),
    Gemma2Config(**SMALL, head_dim=8, final_logit_softcapping=0.5, sliding_window=8),
    CohereConfig(**SMALL, logit_scale=0.3),
    GPT2Config(
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=64,
        vocab_size=SMALL["vocab_size"],
        eos_token_id=STOP,
        bos_token_id=BEGIN,
    ),
]
_DELTA = {
    "num_hidden_layers": 3, "head_dim": 8, "linear_num_value_heads": 4, "linear_num_key_heads": 2,
    "linear_key_head_dim": 4, "linear_value_head_dim": 4, "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}  # fmt: skip
_EXPERTS = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
}  # fmt: skip
_CONVOLUTIONS = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
RECURRENT = [
    Qwen3_5TextConfig(**SMALL | _DELTA),
    Qwen3_5MoeTextConfig(**SMALL | _DELTA | _EXPERTS),
    Qwen3NextConfig(**SMALL | _DELTA | _EXPERTS),
    Lfm2Config(**SMALL | _CONVOLUTIONS),
    Lfm2MoeConfig(**SMALL | _CONVOLUTIONS, num_dense_layers=1, moe_intermediate_size=8,
                  num_experts=4, num_experts_per_tok=2),
]  # fmt: skip
"""Models with recurrent layers, each with one layer of attention between two of them."""


def recurrent(config, *, sharpness=5.0, seed=0):
    """A model of such a configuration whose layers remember more than untrained ones do."""
    torch.manual_seed(seed)
    network = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        network.get_output_embeddings().weight.mul_(sharpness)
        for name, weight in network.named_parameters():
            if "linear_attn" in name or ".conv" in name:
                weight.add_(0.3 * torch.randn_like(weight))
    return LanguageModel(network, tokenizer())


@functools.cache
def tokenizer():
    tokens = ["<pad>", "<bos>", "<eos>", *string.ascii_lowercase, *string.digits, *"+=#"]
    backend = Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    backend.decoder = decoders.Fuse()
    backend.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", BEGIN)]
    )
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>"
    )
    assert len(made) == VOCABULARY
    return made


def qwen2(tokenizer, *, sharpness=1.0, **changes):
    """An untrained model, but with opinions: its output weights are scaled up by ``sharpness``."""
    network = Qwen2ForCausalLM(Qwen2Config(**SMALL | changes))
    with torch.no_grad():
        network.lm_head.weight.mul_(sharpness)
    return LanguageModel(network, tokenizer)


def policy(seed=0, *, sharpness=20.0, hidden_size=16, layers=2, **changes):
    torch.manual_seed(seed)
    changes |= {"hidden_size": hidden_size, "num_hidden_layers": layers}
    return qwen2(tokenizer(), sharpness=sharpness, **changes)


def save(folder, seed=0, **options):
    """A model folder as a user would have it; returns its path as text."""
    return saved(policy(seed, **options), folder)


def saved(made, folder):
    made.network.save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)
    return str(folder)


RECIPE = {
    "name": "tiny",
    "rounds": 2,
    "problems_per_round": 4,
    "group_size": 4,
    "plan": "vertical",
    "threads": 1,
    "task": {"name": "digits", "reward": "hash", "train_problems": 2_000},
    "sampling": {"max_new_tokens": 6, "max_total_tokens": 32},
    "evaluation": {"every": 0, "problems": 2, "out_of_distribution": 0},
}
"""A run of seconds, paid by a hash, so that untrained models have something to learn.
By F-TIS where no other method is named: it reads all that is sent."""


def f_tis(**changes):
    """Return the options of F-TIS, which read all that there is, but for ``changes``."""
    return ObjectiveConfig(**METHODS["f-tis"].fields | changes)


def recipe(models, *overrides, **changes):
    """Return the run of ``models``, paths by node; ``changes`` replace whole keys of RECIPE."""
    nodes = {name: {"model": model, "learning_rate": 1e-3} for name, model in models.items()}
    named = any(key in each for each in overrides for key in ("method", "importance"))
    plain = {} if named else {"objective": METHODS["f-tis"].fields}
    # Overrides are written into the tree that they are given.
    return from_tree(copy.deepcopy({**RECIPE, **plain, "node": nodes, **changes}), overrides)
