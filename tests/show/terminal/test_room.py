import subprocess
import sys
from pathlib import Path

import potluck.show.terminal


def loaded_by(module):
    """In a process of its own: the other tests have loaded everything long since."""
    source = str(Path(potluck.show.terminal.__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {source!r}); import {module}; print(*sys.modules)"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_the_room_loads_reports_and_events_no_other_room_no_torch_and_no_pictures():
    loaded = loaded_by("potluck.show.terminal")
    assert not {"torch", "matplotlib"} & loaded
    ours = {name for name in loaded - loaded_by("potluck.types") if name.startswith("potluck")}
    others = {name for name in ours if not name.startswith("potluck.show.terminal")}
    assert others == {"potluck.reports", "potluck.reports.events"}


def test_the_demo_draws_without_a_window():
    assert "matplotlib.pyplot" not in loaded_by("potluck.demo.run")
