import subprocess
import sys
from pathlib import Path

import pytest

import potluck.dashboard


def loaded_by(module):
    """In a process of its own: the other tests have loaded everything long since."""
    source = str(Path(potluck.dashboard.__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {source!r}); import {module}; print(*sys.modules)"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_the_room_loads_no_other_room_no_torch_and_no_pyplot():
    loaded = loaded_by("potluck.dashboard")
    assert not {"torch", "matplotlib.pyplot"} & (loaded | loaded_by("potluck.dashboard.picture"))
    ours = {name for name in loaded - loaded_by("potluck.types") if name.startswith("potluck")}
    assert {name for name in ours if not name.startswith("potluck.dashboard")} == set()


def test_matplotlib_is_loaded_with_the_first_picture_and_not_before():
    assert "matplotlib" not in loaded_by("potluck.dashboard")
    assert potluck.dashboard.draw is potluck.dashboard.picture.draw
    with pytest.raises(AttributeError, match="no attribute 'drawn'"):
        _ = potluck.dashboard.drawn
