"""The methods a recipe can name, and the options of an objective. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from potluck.fields import Count, Options, Positive

Importance = Literal["none", "vanilla", "truncated"]
"""Keys of ``losses.LOSSES``."""
Others = Literal["all", "none", "successes", "likely-successes"]
"""Completions of other authors that are learned from: see ``others.py``."""
WeightName = Literal["likelihood", "typicality"]
"""Keys of ``weights.WEIGHTS``."""
LossType = Literal["grpo", "dr_grpo", "bnpo", "dapo"]
"""Denominators of a loss: see ``losses.mean_of``."""
Trust = Literal["roster", "everybody", "nobody"]
"""Authors to whom the method is applied as it stands: see ``trust.py``."""


@dataclass(frozen=True, slots=True)
class Method:
    """A named choice of what is learned from others' completions, and by which weight."""

    title: str
    """Name in tables and pictures."""
    importance: Importance
    filter: bool
    others: Others = "all"

    @property
    def fields(self) -> dict[str, Any]:
        """The keys of ``[objective]`` that the method's name stands for."""
        return {"importance": self.importance, "filter": self.filter, "others": self.others}


METHODS: Mapping[str, Method] = {
    "nois": Method("NoIS", "none", filter=False),
    "vis": Method("VIS", "vanilla", filter=False),
    "tis": Method("TIS", "truncated", filter=False),
    "f-nois": Method("F-NoIS", "none", filter=True),
    "f-vis": Method("F-VIS", "vanilla", filter=True),
    "f-tis": Method("F-TIS", "truncated", filter=True),
    "lws": Method("LWS", "none", filter=False, others="likely-successes"),
}
"""Methods by the name that ``[objective] method`` takes: the paper's six, and likelihood-weighted
successes, our own (docs/method.md)."""


class ObjectiveConfig(Options, frozen=True, kw_only=True):
    """Rules of learning from a node's own completions and from those of others: docs/method.md."""

    importance: Importance = "none"
    """Importance scheme for tokens that another model wrote: NoIS, VIS or TIS."""
    filter: bool = False
    """True: completions of negative advantage that are far off-policy are left out (the "F-" of
    F-TIS)."""
    others: Others = "likely-successes"
    """Completions of others that are learned from; all count in their group's mean and in B. "none"
    is a control: others serve as a baseline only."""
    weight: str = "typicality"
    """Weight of others' successes, by what this model finds of them: "likelihood", P^c, or
    "typicality", min(1, T)^c, read with ``others = "likely-successes"``; or one of your own for all
    completions of trusted authors, ``FILE.py:NAME`` or ``MODULE:NAME``, called as those of
    ``weights.py``. It is code, so it runs only with ``--trust-code``."""
    habit_test: bool = True
    """True: successes that bear their author's habit are not learned from until the habit has
    paid here: ``objective/habit.py``. Read with ``others = "likely-successes"`` only."""
    likelihood_exponent: Positive = 1.0
    """c, of both weights. Read with ``others = "likely-successes"`` only."""
    likelihood_unit: Literal["token", "byte"] = "token"
    """Unit of P in that weight. In bytes P does not depend on the tokenizer, so one c is alike for
    unlike models; at 4 bytes a token, c = 4 in bytes is c = 1 in tokens."""
    trust: Trust = "roster"
    """Authors that are trusted: those in the roster and the nodes of one ``potluck run``; all; or
    only this node. From the others only likely successes are learned, whatever the method, and all
    of them together move the model no further than the trusted do (docs/trust.md)."""
    untrusted_exponent: Positive = 8.0
    """c of the weight P^c for successes of authors that are not trusted."""
    own_success_weight: Positive = 1.0
    """Factor on the node's own completions of positive advantage. A control: 1 is GRPO."""
    weight_cap: Positive = 2.0
    """C: largest importance weight of a token. Read with ``importance = "truncated"`` only."""
    divergence_limit: Positive = 50.0
    """g: divergence from which a completion of negative advantage is filtered, in the estimator's
    unit."""
    divergence_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of a token's divergence; k1 and k3 in nats, k2 in nats squared."""
    divergence_reduce: Literal["mean", "sum", "max"] = "mean"
    """Reduction of the divergences of a completion's tokens to one number, D."""
    clip_epsilon: Annotated[float, Meta(ge=0)] = 0.2
    """Epsilon of the PPO clip."""
    clip_epsilon_high: Annotated[float, Meta(ge=0)] = 0.0
    """Epsilon of the clip above 1, where it differs (DAPO: 0.28); 0: ``clip_epsilon``."""
    loss_type: LossType = "grpo"
    """Denominator of the loss, under TRL's names: see ``mean_of`` in ``objective/losses.py``."""
    loss: str = ""
    """Loss of your own, ``FILE.py:NAME`` or ``MODULE:NAME``, called as those of ``losses.py``. It
    is code, so it runs only with ``--trust-code``: docs/trl.md."""
    beta: Annotated[float, Meta(ge=0)] = 0.0
    """Weight of the KL divergence from the model that the node started with, over its own
    completions. 0: none, and no reference model is loaded."""
    updates_per_round: Count = 1
    """Optimiser steps on the completions of one round."""
    advantage_scale: Literal["std", "none"] = "std"
    """Unit of an advantage: the group's standard deviation, or the reward's own."""
    alignment_every: Annotated[int, Meta(ge=0)] = 0
    """Without effect, as the likeness of gradients says nothing of trust. Recipes of 0.2.0 may have
    it."""

    @property
    def has_custom_weight(self) -> bool:
        """True if ``weight`` names code."""
        return ":" in self.weight

    @property
    def weighs_successes(self) -> bool:
        """True if successes of others are learned from by a weight of ``weights.WEIGHTS``."""
        return self.others == "likely-successes"

    @property
    def tests_habits(self) -> bool:
        """True if others' successes are tested for habits."""
        return self.habit_test and self.weighs_successes

    @property
    def settings(self) -> list[str]:
        """Say what is chosen beside the method's name, of what the method reads."""
        weighs = self.weighs_successes and not self.has_custom_weight
        said = {
            f"C = {self.weight_cap:g}": self.importance == "truncated",
            f"g = {self.divergence_limit:g}": self.filter,
            f"c = {self.likelihood_exponent:g}": weighs,
            self.weight: weighs,
            "tests habits": self.tests_habits,
        }
        return [what for what, is_read in said.items() if is_read]

    @property
    def notes(self) -> list[str]:
        """Return a line for each option without effect."""
        if not self.alignment_every:
            return []
        return [
            f"[objective] alignment_every is {self.alignment_every}, and without effect: the "
            f"likeness of gradients says nothing of trust; take it out of the recipe"
        ]


def reads_author_logp(objective: ObjectiveConfig | Method) -> bool:
    """Return True if learning needs the authors' log-probabilities, as a loss of one's own may."""
    own = isinstance(objective, ObjectiveConfig) and (objective.loss or objective.has_custom_weight)
    return objective.importance != "none" or objective.filter or bool(own)


def method_of(objective: ObjectiveConfig) -> str:
    """Return the name of an objective's method; NAME+OTHERS where no method has its ``others``.

    >>> method_of(ObjectiveConfig())
    'lws'
    >>> method_of(ObjectiveConfig(importance="truncated", others="successes"))
    'tis+successes'
    """
    chosen = {key: getattr(objective, key) for key in METHODS["nois"].fields}
    for asked in (chosen, chosen | {"others": "all"}):
        for name, method in METHODS.items():
            if method.fields == asked:
                return name if asked == chosen else f"{name}+{objective.others}"
    raise AssertionError("every pair of an importance scheme and a filter has a name")
