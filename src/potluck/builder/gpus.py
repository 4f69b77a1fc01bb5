"""Memory of GPUs by their names. Imports no torch: a wrong name is refused at once."""

from potluck.config import ConfigError

GPUS = {
    "a10": 22, "a100-40gb": 39, "a100-80gb": 79, "b200": 178, "h100": 79, "h200": 139, "l4": 22,
    "l40s": 44, "rtx3090": 23, "rtx4090": 23, "rtx5090": 31, "rtxa6000": 47, "t4": 14,
    "v100-16gb": 15, "v100-32gb": 31,
}  # fmt: skip
"""GiB that CUDA reports of each, rounded down: less than the sheet's figure, which counts in
powers of ten or includes what error correction takes."""


def gpu_gib(name: str) -> float:
    """Read the GiB of a GPU from its name or the number itself; raise ConfigError if none is so."""
    try:
        gib = GPUS.get(name.lower()) or float(name)
    except ValueError:
        gib = 0.0
    if not 0 < gib < 10_000:
        known = ", ".join(GPUS)
        raise ConfigError(f"--gpu is {name!r}; choose one of {known}, or its memory in GiB")
    return gib
