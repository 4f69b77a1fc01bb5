"""The check of shapes by name: an array's name ends in its shape (letters in ``types.py``)."""

import torch
from torch import Tensor


def require_shapes(**tensors: Tensor) -> None:
    """Raise ValueError unless every tensor has the shape that its name ends in, each letter stands
    for one size, and a mask is boolean: a ``logp_gen_BT`` of shape [1, T] would broadcast.

    >>> require_shapes(logp_BT=torch.zeros(2, 3), advantage_B=torch.zeros(3))
    Traceback (most recent call last):
    ValueError: advantage_B has shape [3], but B is 2 in logp_BT
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, tensor in tensors.items():
        letters = name.rpartition("_")[2]
        if tensor.ndim != len(letters):
            raise ValueError(f"{name} has shape {[*tensor.shape]}; expected [{', '.join(letters)}]")
        for letter, size in zip(letters, tensor.shape, strict=True):
            expected, first = sizes.setdefault(letter, (size, name))
            if size != expected:
                raise ValueError(
                    f"{name} has shape {[*tensor.shape]}, but {letter} is {expected} in {first}"
                )
        if name.startswith("mask") and tensor.dtype != torch.bool:
            raise ValueError(f"{name} is of {tensor.dtype}; expected torch.bool")
