"""What the pages' words mean, one line each, for readers and for legends."""

from collections.abc import Mapping
from typing import Final

from potluck.reproduce.suite import Scale, Suite

MEANINGS: Final[Mapping[str, str]] = {
    "alone": "writes every answer itself, learns from those",
    "half": "alone with half of the problems: it writes what a node of two writes",
    "quarter": "alone with a quarter of the problems: it writes what a node of four writes",
    "nois": "takes the others' answers as its own",
    "vis": "weighs each token by how much likelier it finds it than its author, inside the clip",
    "tis": "the same weight outside the clip, at most 2",
    "f-nois": "NoIS, with the filter",
    "f-vis": "VIS, with the filter",
    "f-tis": "TIS, with the filter, g = 50",
    "g5": "a filter that silences more",
    "g10": "a filter that silences more",
    "g100": "a filter that silences less",
    "horizontal": "every node writes some answers to every problem",
}
"""Of the settings by name."""

GLOSSARY: Final = """\
- **Greedy accuracy**: share of the validation problems, of which training has none, that a model
  gets right when it always takes the likeliest token. **Sampled reward**: share of right answers
  (completions) among those that it samples while it trains. **Out of distribution**: greedy
  accuracy on longer or harder problems than it trains on.
- **Alone**: a model trains by itself and writes every answer itself. **Half** (or a
  **quarter**): alone with half (a quarter) of the problems. That is what a node of two (four)
  writes, so it is the control that costs as much generation.
- **Together**: the models of a pair share the problems, write an equal part of the answers each
  and learn from all of them. **Vertical** (the default): each problem has one author.
  **Horizontal**: every model writes some of the answers to each problem.
- **NoIS**: a model takes the others' answers as its own. **VIS**, **TIS**: it weighs each token
  by its own probability over the author's: inside the clip of GRPO (VIS), or outside and at most
  2 (TIS).
- **F-** (F-NoIS, F-VIS, F-TIS): with the filter. A wrong answer that the model would hardly have
  written itself is silenced: where its divergence exceeds **g**, which is 50 if nothing else is
  said.
- **Verdicts**: a claim is tried on every model of every pair. The difference of two settings is
  taken seed by seed; [low, high] is the 95 % t-interval of its mean. *Shown*: the whole interval
  lies where the claim wants it. *Refuted*: none of it does. Else *inconclusive*, with the
  reason. A claim is shown if all of its tests show it (in each pair one of them, where it says
  "at least one"), and refuted if one refutes it. One interval in 20 misses the truth by chance."""


def pair_title(suite: Suite, scale: Scale, pair: str) -> str:
    """Of FAMILY.PAIR.

    >>> from pathlib import Path
    >>> from potluck.reproduce.suite import Family, ScaleFile
    >>> family = Family(title="sums", model={"a": "f#a", "b": "f#b"}, pair={"size": ("a", "b")})
    >>> suite = Suite(Path(), {}, {"tiny": ScaleFile(family={"x": family})}, ())
    >>> pair_title(suite, "tiny", "x.size")
    'sums: a + b'
    """
    family = pair.partition(".")[0]
    return f"{suite.scales[scale].family[family].title}: {' + '.join(suite.pair(scale, pair))}"


def setting_title(suite: Suite, setting: str) -> str:
    """As a legend says it: the name, and what it means."""
    title = suite.settings[setting].title
    meaning = MEANINGS.get(setting, "")
    if title.lower().startswith("alone,"):
        return title
    return f"{title}: {meaning}" if meaning else title
