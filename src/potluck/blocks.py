"""Rows of a large matrix, such as logits, a block at a time.

Each step of a computation on a whole matrix writes one of its size and reads it back from memory.
Where a block of rows goes through all steps before the next one is read, it stays in the cache.
"""

from collections.abc import Iterator

NUMBERS_OF_A_BLOCK = 2**18
"""Numbers of a block on a CPU: 1 MiB in float32, which fits the second cache."""
NUMBERS_OF_A_GPU_BLOCK = 2**25
"""Numbers of a block elsewhere, where it is the start of each step that costs time."""


def rows_of_a_block(columns: int, device: str) -> int:
    """Count the rows of a block on a device of this type."""
    numbers = NUMBERS_OF_A_BLOCK if device == "cpu" else NUMBERS_OF_A_GPU_BLOCK
    return max(1, numbers // columns)


def row_blocks(rows: int, columns: int, device: str) -> Iterator[slice]:
    """Cut so many rows into blocks, in their order; of 0 rows there is none.

    >>> list(row_blocks(3, columns=2**17, device="cpu"))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    size = rows_of_a_block(columns, device)
    return (slice(first, min(first + size, rows)) for first in range(0, rows, size))
