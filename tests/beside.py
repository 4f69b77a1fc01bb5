"""Files beside a recipe that would be code for a program that looks for modules in its folder."""

import os
import py_compile
import subprocess
from pathlib import Path

MODULES = (
    # of Python itself
    *("statistics", "random", "subprocess", "pathlib", "typing", "tempfile", "multiprocessing"),
    *("contextlib", "importlib", "json", "socket", "signal", "logging"),
    # of libraries that are needed, or that are looked for in case they are there
    *("torch", "msgspec", "yaml", "typer", "rich", "jinja2", "wandb", "trackio", "vllm"),
    *("math_verify", "reasoning_gym", "bitsandbytes", "flash_attn", "uvicorn", "starlette"),
    # run without an import of anybody's
    *("sitecustomize", "usercustomize", "conftest", "setup", "evil_command", "evil_feed"),
)
PACKAGES = ("numpy", "potluck", "potluck_experiments", "transformers", "encodings", "site")
PROGRAMS = ("git", "nvidia-smi", "cc", "gcc", "c++", "ldconfig", "uname", "lscpu", "python3", "sh")
"""Programs that a library may start by their names."""
# Written without ``open``, which is not there yet when Python asks for ``encodings``.
MARKS = """
import posix, sys
file = posix.open({marks!r}, posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT)
posix.write(file, " ".join([{name!r}, *sys.orig_argv]).encode() + b"\\n")
posix.close(file)
"""
COMMANDS = """
[potluck.commands]
evil = evil_command:main
[potluck.feeds]
evil = evil_feed:feed
[fsspec.specs]
evil = evil_command:main
[torch.backends]
evil = evil_command:main
[wandb.plugins]
evil = evil_command:main
[matplotlib.backend]
evil = evil_command:main
"""


def put_code(folder: Path) -> Path:
    """Put one file of each kind into ``folder``; return the file in which each leaves its mark."""
    marks = folder.parent / f"{folder.name}.ran"
    for name in MODULES:
        (folder / f"{name}.py").write_text(MARKS.format(marks=str(marks), name=name))
    for name in PACKAGES:
        (folder / name).mkdir()
        code = MARKS.format(marks=str(marks), name=f"{name}/")
        (folder / name / "__init__.py").write_text(code)
        (folder / name / "__main__.py").write_text(code)
    path_line = f"import os; open({str(marks)!r}, 'a').write('evil.pth' + os.linesep)\n"
    (folder / "evil.pth").write_text(path_line)
    for kind, data in (("dist-info", "METADATA"), ("egg-info", "PKG-INFO")):
        place = folder / f"evil_{kind[:3]}-1.0.{kind}"
        place.mkdir()
        (place / data).write_text(f"Metadata-Version: 2.1\nName: evil-{kind[:3]}\nVersion: 1.0\n")
        (place / "entry_points.txt").write_text(COMMANDS)
    source = folder / "secrets.py"
    source.write_text(MARKS.format(marks=str(marks), name="secrets.pyc"))
    py_compile.compile(str(source), str(folder / "secrets.pyc"))
    source.unlink()
    (folder / "pyvenv.cfg").write_text("home = .\ninclude-system-site-packages = true\n")
    (folder / "matplotlibrc").write_text("backend: module://evil_command\n")
    for program in PROGRAMS:
        (folder / program).write_text(f"#!/bin/sh\necho {program} $0 $* >> {marks}\nexit 1\n")
        (folder / program).chmod(0o755)
    return marks


def ran(marks: Path) -> list[str]:
    """Return the lines of what was run since it was last asked."""
    lines = marks.read_text().splitlines() if marks.exists() else []
    marks.unlink(missing_ok=True)
    return lines


TINY = """\
name = "tiny"
rounds = 1
problems_per_round = 2
group_size = 4
threads = 1

[task]
name = "digits"

[sampling]
max_new_tokens = 8
max_total_tokens = 64

[evaluation]
problems = 2
out_of_distribution = 0

[node.small]
model = "builtin:digits-small"
"""
SECOND_NODE = '\n[node.terse]\nmodel = "builtin:digits-terse"\n'
GUESS = """\
class Guess:
    actions = ["0", "1"]

    def reset(self, seed):
        return f"Is {seed % 2} odd?"

    def step(self, text):
        return "So it is.", float(text), True
"""
CONSOLE_SCRIPT = """\
from potluck.cli import main

if __name__ == "__main__":
    main()
"""
"""Program that an installer writes: the folder of the file comes first on the path."""


def folder_with_code(place):
    """Make a folder that was downloaded: recipes, and code of each kind beside them."""
    place.mkdir()
    put_code(place)
    (place / "tiny.toml").write_text(TINY + SECOND_NODE)
    (place / "alone.toml").write_text(TINY)
    (place / "guess.py").write_text(GUESS)
    return place


def console_environment():
    """Return the environment of a program that finds no modules by it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return environment | {"HF_HUB_OFFLINE": "1"}


def start(words, folder, **variables):
    """Start a program in the folder; return what of the folder ran, and how the program ended."""
    done = subprocess.run(
        words, cwd=folder, env=console_environment() | variables, capture_output=True, text=True
    )
    return ran(folder.parent / f"{folder.name}.ran"), done
