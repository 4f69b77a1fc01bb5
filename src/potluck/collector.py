"""Python's search for cycles of objects that nobody holds, which may be put off."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Look for no cycles during a block that makes objects by the million and keeps them, as the
    import of libraries and the loading of vocabularies do: it took a third of their time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
