"""GRPO of one tiny model with TRL. ``trl_twin.py`` is the same with Potluck, and with a partner.

    pip install trl
    python examples/trl_grpo.py            # less than a minute of one CPU core, no network

The model, random weights and a token for each letter, learns to write vowels. Model and data are
made here; each setting has its counterpart in the twin, and docs/trl.md has the list of all.
"""

import string
import sys
import tempfile
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

STEPS, PROBLEMS, GENERATIONS, LONGEST = 30, 8, 8, 12
RATE = 3e-3


def vowels(completions, **columns):
    """Share of the letters that are vowels, less 1.

    At most 0, because Potluck never gives more to a completion that was cut off (docs/trl.md).
    """
    return [sum(c in "aeiou" for c in text) / max(1, len(text)) - 1 for text in completions]


def brief(completions, **columns):
    return [-float(len(text)) for text in completions]


def make_rows():
    return [{"prompt": f"{first}{second}"} for first in "bcdfgh" for second in "klmnpqrst"]


def make_model(folder, seed=0, width=32):
    """Save a model with its tokenizer, as they come from a hub; return the folder."""
    ids = {token: id for id, token in enumerate(["<pad>", "<eos>", *string.ascii_lowercase])}
    backend = Tokenizer(models.WordLevel(ids, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    backend.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>"
    ).save_pretrained(folder)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(ids), hidden_size=width, intermediate_size=2 * width,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        max_position_embeddings=32, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return str(folder)


def main(folder):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    trainer = GRPOTrainer(
        model=make_model(Path(folder) / "model"),
        reward_funcs=[vowels, brief],
        train_dataset=Dataset.from_list(make_rows()),
        args=GRPOConfig(
            output_dir=f"{folder}/trl", seed=0, use_cpu=True, report_to=[], save_strategy="no",
            max_steps=STEPS, num_generations=GENERATIONS, max_completion_length=LONGEST,
            per_device_train_batch_size=GENERATIONS, gradient_accumulation_steps=PROBLEMS,
            learning_rate=RATE, lr_scheduler_type="constant", max_grad_norm=1.0,
            reward_weights=[1.0, 0.01], temperature=1.0, beta=0.0, epsilon=0.2, loss_type="grpo",
            logging_steps=1, disable_tqdm=True, bf16=False, gradient_checkpointing=False,
        ),
    )  # fmt: skip
    trainer.train()
    return [line["reward"] for line in trainer.state.log_history if "reward" in line]


if __name__ == "__main__":
    torch.set_num_threads(1)
    rewards = main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    print("mean reward:", *(f"{reward:.2f}" for reward in [*rewards[::6], rewards[-1]]))
