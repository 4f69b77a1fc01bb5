"""Input of a model before it writes."""

import json

import numpy as np
from transformers import PreTrainedTokenizerBase

from potluck.model.loading import ModelError
from potluck.template import TemplateFailed, render
from potluck.types import Problem


def special_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """List the ids of tokens that no text may become."""
    added = tokenizer.added_tokens_decoder.items()
    return frozenset(tokenizer.all_special_ids) | {id for id, token in added if token.special}


def prompt_ids(tokenizer: PreTrainedTokenizerBase, problem: Problem) -> np.ndarray:
    """Make int32 ids of a model's input before it writes. With a chat template: a system and a
    user message, or one where it knows no system (Gemma), and the tools; without: the system text,
    an empty line, and the question, as the tokenizer begins a text."""
    together = f"{problem.system}\n\n{problem.question}" if problem.system else problem.question
    if not tokenizer.chat_template:
        return np.array(tokenizer(together)["input_ids"], np.int32)
    tools = json.loads(problem.tools) if problem.tools else None
    name = tokenizer.name_or_path
    chats = [problem.messages, [{"role": "user", "content": together}]]
    for chat in chats if problem.system else chats[:1]:
        try:
            template, words = tokenizer.get_chat_template(), tokenizer.special_tokens_map
            text = render(template, chat, words, tools)
            break
        except (TemplateFailed, ValueError) as error:
            failed = error
    else:
        raise ModelError(f"the chat template of {name!r} makes no prompt: {failed}") from failed
    named = [str(tool.get("function", tool)["name"]) for tool in tools or ()]
    if absent := [each for each in named if each not in text]:
        raise ModelError(
            f"the chat template of {name!r} tells the model of no tools: its prompt lacks "
            f"{absent[0]!r}; take a model that was trained with tools, or one without a template"
        )
    return np.array(tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)
