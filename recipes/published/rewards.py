"""Grades of the recipes beside this file, as others have published numbers by them.

``strict`` is verl's for GSM8K: the first number after "#### ", commas left out, has to be the right
answer's very text. "#### $18" and "#### 18." are wrong, "#### 18%" and what follows do not matter.
``lenient`` is ours: the last number of the text, however it is announced, equal as a number.
``reversed_text`` is verifiers': difflib's ratio between what stands in the tags and the text
backwards.
"""

import re
from decimal import Decimal
from difflib import SequenceMatcher

MARKED = re.compile(r"#### (-?[0-9.,]+)")
NUMBER = re.compile(r"-?[0-9](?:[0-9,]*[0-9])?(?:\.[0-9]+)?")
TAGGED = re.compile(r"<reversed_text>(.*?)</reversed_text>", re.DOTALL)


def strict(completions: list[str], answer: list[str], **columns: object) -> list[float]:
    marked = [MARKED.search(text) for text in completions]
    found = [match and match[1].replace(",", "") for match in marked]
    return [float(one == _gold(its)) for one, its in zip(found, answer, strict=True)]


def lenient(completions: list[str], answer: list[str], **columns: object) -> list[float]:
    numbers = [NUMBER.findall(text.replace("\u2212", "-")) for text in completions]
    return [
        float(bool(found) and Decimal(found[-1].replace(",", "")) == Decimal(_gold(its)))
        for found, its in zip(numbers, answer, strict=True)
    ]


def _gold(answer: str) -> str:
    """Read the number of an answer of GSM8K, which ends in '#### 1,080'."""
    return answer.rpartition("####")[2].strip().replace(",", "")


def reversed_text(completions: list[str], prompts: list[str], **columns: object) -> list[float]:
    tagged = [TAGGED.search(text) for text in completions]
    written = [match[1].strip() if match else "" for match in tagged]
    pairs = zip(written, prompts, strict=True)
    return [SequenceMatcher(None, text, prompt[::-1]).ratio() for text, prompt in pairs]
