"""Others' successes, weighed by how likely this model finds them.

Two choices about completions of other authors, both made on advantages, so that they go with any
loss. ``select_others`` needs no forward pass: what it sets to 0 is not read at all. The weights
(``weights.py``) need the learner's own log-probabilities, and nothing that an author claims. LWS,
likelihood-weighted successes, is both with the loss of NoIS; with ``weight = "likelihood"`` (the
default is typicality):

    A_i <- P_i^c A_i  if A_i > 0, else 0        for completions of others
    L = - 1/B sum_i 1/|a_i| sum_t  min(R_it A_i, clip(R_it, 1-e, 1+e) A_i)

docs/method.md has the reasons, prior work and the limits.
"""

import torch
from torch import Tensor

from potluck.objective.methods import Others
from potluck.objective.shapes import require_shapes


def select_others(advantage_B: Tensor, exempt_B: Tensor, others: Others) -> Tensor:
    """Set the advantage of others' completions that are not learned from to zero.

        A_i if i is exempt (one's own), or if
            others = "all"                              always
            others = "successes", "likely-successes"    A_i > 0
            others = "none"                             never
        else 0

    Nothing is learned from a failure of another: off-policy, E[grad log pi] is not 0, so pushing it
    down also pushes down the part of it that was right. Such a row still counts in its group's
    mean and standard deviation, and in B.

    >>> advantage_B, exempt_B = torch.tensor([1.0, -1.0, 1.0, -1.0]), torch.tensor([1, 1, 0, 0])
    >>> select_others(advantage_B, exempt_B == 1, "successes")
    tensor([ 1., -1.,  1.,  0.])
    """
    require_shapes(advantage_B=advantage_B, exempt_B=exempt_B)
    if others == "all":
        return advantage_B
    kept_B = exempt_B if others == "none" else exempt_B | (advantage_B > 0)
    return torch.where(kept_B, advantage_B, 0.0)


def sequence_likelihood(
    logp_BT: Tensor, mask_BT: Tensor, *, length_B: Tensor | None = None
) -> Tensor:
    """Return P_i = exp( 1/|a_i| sum_t logp_it ), the geometric mean of a completion's tokens.

    It is 1 / perplexity: .7 to .95 between small models that write alike, below .001 for a notation
    that the model does not write. ``length_B`` is |a_i| in another unit than tokens, such as bytes
    of text: then P does not depend on how a tokenizer cuts the text.

    >>> sequence_likelihood(torch.log(torch.tensor([[0.9, 0.4]])), torch.tensor([[True, True]]))
    tensor([0.6000])
    """
    require_shapes(logp_BT=logp_BT, mask_BT=mask_BT)
    sum_B = torch.where(mask_BT, logp_BT, 0.0).sum(dim=1)
    length_B = mask_BT.sum(dim=1) if length_B is None else length_B
    return (sum_B / length_B.clamp(min=1)).exp()
