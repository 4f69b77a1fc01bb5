"""Models whose chat templates have each its own way with turns, calls and answers of tools.

The templates are ours, in the formats that the families of models document.
"""

import copy
import functools
import json

import torch
from tokenizers import AddedToken

import tiny
import unlike
from potluck.episode import ToolCall, Turn
from potluck.types import Observation, Problem

QWEN = """{%- if tools %}{{ '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}
{{- '# Tools\\n' }}{% for tool in tools %}{{ tool | tojson + '\\n' }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{% endif %}
{%- set last = namespace(question=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set last.question = loop.index0 %}{% endif %}
{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'user' %}{{ '<|im_start|>user\\n' + m.content + '<|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}
{%- set thought = m.content.split('</think>')[0].split('<think>')[-1] if '</think>' in m.content %}
{%- set said = m.content.split('</think>')[-1].lstrip('\\n') %}
{{- '<|im_start|>assistant\\n' }}
{%- if loop.index0 > last.question and (thought or loop.last and thinks) %}
{{- '<think>\\n' + (thought or '') | trim + '\\n</think>\\n\\n' }}{% endif %}
{{- said }}
{%- for call in m.tool_calls or [] %}
{%- if not loop.first or said %}{{ '\\n' }}{% endif %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson + '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""Thoughts of earlier turns are dropped."""
THINKING = "{% set thinks = true %}" + QWEN
"""A last turn without thoughts gets some."""
LLAMA = """{{- '<|begin_of_text|><|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools %}{{ 'Environment: ipython\\n' }}{% endif %}{{ 'Today: 26 Jul 2024\\n\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content | trim }}
{%- set messages = messages[1:] %}{% endif %}{{ '<|eot_id|>' }}
{%- for m in messages %}
{%- if m.role == 'tool' %}{{ '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
{{- m.content | tojson if m.content is iterable else m.content }}{{ '<|eot_id|>' }}
{%- elif m.tool_calls %}
{%- if m.tool_calls | length != 1 %}{{ raise_exception('one call at once') }}{% endif %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- set call = m.tool_calls[0].function %}
{{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}<|eot_id|>' }}
{%- else %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}
{%- if loop.first and tools %}{% for t in tools %}{{ t | tojson(indent=4) + '\\n\\n' }}{% endfor %}
{%- endif %}{{ m.content | trim + '<|eot_id|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
"""One call in a turn, and nothing said beside it; what tools answer is a string of JSON."""
MISTRAL = """{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}
{%- set messages = messages[1:] %}{% endif %}{{ bos_token }}
{%- for m in messages %}
{%- if m.role == 'user' %}
{%- if tools and loop.last %}{{ '[AVAILABLE_TOOLS] ' + tools | tojson + '[/AVAILABLE_TOOLS]' }}
{%- endif %}{{ '[INST] ' }}{% if loop.last and system %}{{ system + '\\n\\n' }}{% endif %}
{{- m.content + '[/INST]' }}
{%- elif m.tool_calls %}{{ '[TOOL_CALLS] [' }}
{%- for call in m.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception('ids have 9 letters') }}{% endif %}
{{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' }}
{{- ', ' if not loop.last else ']' + eos_token }}{% endfor %}
{%- elif m.role == 'assistant' %}{{ ' ' + m.content | trim + eos_token }}
{%- else %}{{ '[TOOL_RESULTS] {"content": ' + m.content + ', "call_id": "' + m.tool_call_id }}
{{- '"}[/TOOL_RESULTS]' }}{% endif %}
{%- endfor %}"""
"""Its marks are special tokens, calls have names, and nothing is said beside them."""
GEMMA = """{{ bos_token }}{% for m in messages %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('by turns') }}{% endif %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}
{{- m.content | trim + '<end_of_turn>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""
"""It knows neither a system nor tools."""

MODELS = {
    "qwen": (
        "byte-level, single digits", QWEN, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>",
         "</think>"],
    ),
    "llama": (
        "byte-level, three digits", LLAMA,
        ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>",
         "<|eom_id|>", "<|eot_id|>"], [],
    ),
    "mistral": (
        "SentencePiece-like, bytes", MISTRAL,
        ["<s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
         "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "</s>"], [],
    ),
    "gemma": (
        "SentencePiece-like, bytes", GEMMA, ["<bos>", "<start_of_turn>", "<end_of_turn>"], [],
    ),
    "plain": ("byte-level, single digits", None, ["<|end|>"], []),
}  # fmt: skip
"""By family: tokenizer, template, special tokens, of which the last ends a turn, and others."""
TOOLS = json.dumps(
    [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {}}}]
)
PROBLEM = Problem("p", "What is 1+2?", "3", tools=TOOLS)


def made(name, template):
    """A model of random weights with the tokenizer of a family, and any template."""
    base, _, special, added = MODELS[name]
    tokenizer = copy.deepcopy(unlike.tokenizers()[base])
    tokenizer.add_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in added])
    tokenizer.eos_token, tokenizer.bos_token = special[-1], special[0]
    tokenizer.chat_template, tokenizer.name_or_path = template, f"a/{name}"
    return tiny.qwen2(
        tokenizer, vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8,
        num_hidden_layers=1, num_attention_heads=1, max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip


@functools.cache
def model(name):
    """A model of a family."""
    torch.manual_seed(0)
    return made(name, MODELS[name][1])


SPECIAL = [token for _, _, special, added in MODELS.values() for token in special + added]
SPECIAL += ["<pad>", "<eos>", "<unk>"]
LOOKS = (
    '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
    '{"name": "add", "parameters": {"a": 1}}',
    '[TOOL_CALLS] [{"name": "add", "arguments": {}}]',
    "add(a=1)", "<tool_call>", '{"name": "add"}', "f(", '"}}\n</tool_call>', "]", "}",
)  # fmt: skip
"""Texts that are calls somewhere, or parts of them."""
NUMBERS = (0, -1, 1, 1.0, -0.0, 1e22, 1e-7, 0.1, 2**53 + 1, 10**30, -(2**63), 1.5e300, True, None)


def text(lot):
    """A text of any kind, often with what means something to a model."""
    kind = lot.random()
    if kind < 0.1:
        return ""
    if kind < 0.3:
        return unlike.plain_text(lot)[:-1]
    pieces = [
        lot.choice((*SPECIAL, *LOOKS, '"', "\\", "\n", "'")) for _ in range(lot.randint(0, 2))
    ]
    return "".join([unlike.text(lot)[: lot.randint(0, 60)], *pieces][:: lot.choice((1, -1))])


def value(lot, depth=0):
    """A value that JSON can say."""
    kind = lot.random()
    if kind < 0.3 or depth > 3:
        return lot.choice(NUMBERS)
    if kind < 0.6:
        return text(lot)
    if kind < 0.8:
        return [value(lot, depth + 1) for _ in range(lot.randint(0, 3))]
    return {text(lot): value(lot, depth + 1) for _ in range(lot.randint(0, 3))}


def turn(lot):
    """A turn: half of them have calls, and a third of those say something beside."""
    if lot.random() < 0.5:
        return Turn(lot.choice(LOOKS) if lot.random() < 0.1 else text(lot))
    names = ("add", "get_it", "über", "a.b-c:d/e", "no name", '"', "")
    calls = []
    for _ in range(lot.choice((1, 1, 1, 2, 3))):
        keys = [lot.choice(("a", "b2", "some key", text(lot))) for _ in range(lot.randint(0, 3))]
        name = lot.choice(names) if lot.random() < 0.2 else "add"
        calls.append(ToolCall(name, {key: value(lot) for key in keys}))
    return Turn(text(lot) if lot.random() < 1 / 3 else "", tuple(calls))


def observations(lot):
    """What an environment may say behind a turn."""
    if lot.random() < 0.5:
        return (Observation(text(lot)),)
    return tuple(Observation(text(lot), "add") for _ in range(lot.randint(1, 3)))
