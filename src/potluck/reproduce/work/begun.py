"""Half of a run: what it was begun with, and whether it can go on."""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from potluck.config import RunConfig
from potluck.reproduce.suite import Scale


def go_on(
    folder: Path, config: RunConfig, begun: IO[str], circumstances: Mapping[str, Any]
) -> tuple[float, str]:
    """CPU seconds that the run has taken so far, and why it cannot go on; empty: it can, or was
    never begun."""
    from potluck.assemble import first_round

    if not folder.exists():
        return 0.0, ""
    was: dict[str, Any] = {}
    with suppress(ValueError):
        begun.seek(0)
        was = json.JSONDecoder().raw_decode(begun.read())[0]
    if "cpu_s" not in was:
        return 0.0, "it was finished, or nothing says what it was begun with"
    if others := [what for what in circumstances if was.get(what) != circumstances[what]]:
        return 0.0, f"{' and '.join(others)} changed since it was begun"
    if not first_round(folder, config):
        return 0.0, "no round was saved"
    return float(was["cpu_s"]), ""


def make_room(folder: Path, scale: Scale) -> str:
    """Removes a run that cannot go on; one of paper scale took hours, and is moved aside."""
    if scale == "tiny":
        shutil.rmtree(folder)
        return "begun anew"
    before = folder.with_name(f"{folder.name}.before")
    if before.exists():
        shutil.rmtree(before)
    folder.rename(before)
    return f"begun anew, what was done is {before.name} now"


def note(begun: IO[str], circumstances: Mapping[str, Any], spent_s: float) -> None:
    """In place, as the file is the lock. Shortened after it is written: an end of the old text that
    stays is not read, but a file that is empty loses the run."""
    begun.seek(0)
    json.dump({**circumstances, "cpu_s": spent_s}, begun)
    begun.flush()
    begun.truncate()
