"""What the pages' words mean, one line each, for readers and for legends."""

from collections.abc import Mapping
from typing import Final

from potluck.reproduce.page.markdown import counted
from potluck.reproduce.suite import Experiment, Scale, Suite

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
  accuracy on longer or harder problems than it trains on with GRPO. At scale tiny the base models
  had seen such problems: 25 to 35 % of their schooling was made of them.
- **Alone**: a model trains by itself and writes every answer itself. **Half** (or a
  **quarter**): alone with half (a quarter) of the problems. That is what a node of two (four)
  writes: *the same generation*. It is not the same learning: the node learns from all problems of
  a round, half from half of them, with a learning rate that was tuned for all.
- **Twins**: one model under two names. They begin equal and learn from the same answers, so they
  stay equal, and together they are alone with other dice.
- **Weaker**, **stronger**: of a pair, by what the two reach alone in the measure at hand. They are
  chosen by the very runs that they are then compared with. A model that had bad luck alone is the
  weaker one a little too often and then seems to gain, the stronger one seems to lose: this
  favours the first two claims of Table 2 a little.
- **Together**: the models of a pair share the problems, write an equal part of the answers each
  and learn from all of them. **Vertical** (the default): each problem has one author.
  **Horizontal**: every model writes some of the answers to each problem.
- **NoIS**: a model takes the others' answers as its own. **VIS**, **TIS**: it weighs each token
  by its own probability over the author's: inside the clip of GRPO (VIS), or outside and at most
  2 (TIS).
- **F-** (F-NoIS, F-VIS, F-TIS): with the filter. A wrong answer that the model would hardly have
  written itself is silenced: where its divergence exceeds **g**, which is 50 if nothing else is
  said.
- **Intervals**: [low, high] is the 95 % t-interval of the mean over the seeds. It covers the seeds
  and nothing else: each model is one base model, always asked the same problems. At scale tiny
  these are 300; at an accuracy of .9 that is a binomial standard error of .017, common to both
  sides of a difference as far as they answer alike.
- **Verdicts**: a claim is tried on every model that it is about, in every pair (or in the mean over
  the pairs of a task). The difference of two settings is taken seed by seed, over the seeds that
  the scale asks for and no more. A test is *shown* if the whole interval lies where the claim wants
  it, *refuted* if none of it does, else *inconclusive*, with the reason. A claim is shown if all of
  its tests show it at 95 % (in each pair one of them, where it says "at least one"). Of m tests
  one is refuted by chance the sooner the more there are, so a claim is refuted only if one of them
  refutes it at the level 1 - .05/m.
- **Floor**, **ceiling**: no room to move, so no verdict. Out of distribution where the setting that
  is compared with is below .1 or above .8; in greedy accuracy, of a claim that something is better
  than a setting that is above .95."""


def pair_title(suite: Suite, scale: Scale, pair: str) -> str:
    """Of FAMILY.PAIR; or of FAMILY alone, where something is the mean over its pairs.

    >>> from pathlib import Path
    >>> from potluck.reproduce.suite import Family, ScaleFile
    >>> family = Family(title="sums", model={"a": "f#a", "b": "f#b"}, pair={"size": ("a", "b")})
    >>> suite = Suite(Path(), {}, {"tiny": ScaleFile(family={"x": family})}, ())
    >>> pair_title(suite, "tiny", "x.size")
    'sums: a + b'
    >>> pair_title(suite, "tiny", "x")
    'sums: mean of pairs'
    """
    family, _, name = pair.partition(".")
    title = suite.scales[scale].family[family].title
    return f"{title}: {' + '.join(suite.pair(scale, pair)) if name else 'mean of pairs'}"


def tried_on(suite: Suite, scale: Scale, experiment: Experiment, pair: str) -> str:
    """Of a Finding's ``pair``: its title, or of how many of the experiment's it is the mean."""
    title = pair_title(suite, scale, pair)
    if "." in pair:
        return title
    there = sum(each.partition(".")[0] == pair for each in experiment.pairs.get(scale, ()))
    return title.removesuffix("pairs") + counted(there, "pair")


def setting_title(suite: Suite, setting: str) -> str:
    """As a legend says it: the name, and what it means."""
    title = suite.settings[setting].title
    meaning = MEANINGS.get(setting, "")
    if title.lower().startswith("alone,"):
        return title
    return f"{title}: {meaning}" if meaning else title
