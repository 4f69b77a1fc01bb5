"""Build what a release publishes, and compare it with the tree: distributions.py FOLDER.

FOLDER then holds the wheel and the source distribution of potluck. The wheel is built twice, from
the tree and from the source distribution, and both have to be equal to the byte.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email import message_from_string
from pathlib import Path

TREE = Path(__file__).parents[1]
IN_SOURCE = (
    *("src/", "tests/", "recipes/", "scripts/", "benchmarks/"),
    *("examples/", "docs/", "deploy/"),
)
AT_ROOT = (
    *("pyproject.toml", "LICENSE", "CITATION.cff", "Makefile", "constraints.txt", "zensical.toml"),
    *(".dockerignore", ".gitignore"),  # the builder adds the second
)
NEEDED = (
    *("potluck/py.typed", "potluck/recipe.toml", "potluck/show/web/page/page.html"),
    *("potluck/show/web/page/page.css", "potluck/show/web/page/90-main.js"),
    *("potluck/node/storage/card.md.j2", "potluck/models/digits-small/model.safetensors"),
)
"""Files that git could lose without a test of the tree that fails: each has a kind of its own."""


def build(kind: str, source: Path, folder: Path) -> Path:
    """Build a distribution without a network and return its file."""
    words = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "-o", folder, source]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    (made,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def tracked(folder: str = "") -> set[str]:
    """Return what git has of a folder, by paths from there."""
    words = ["git", "-C", TREE / folder, "ls-files", "-z"]
    return set(
        subprocess.run(words, check=True, capture_output=True, text=True).stdout.split("\0")[:-1]
    )


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


def require_equal(what: str, found: set[str], expected: set[str]) -> None:
    """Exit with one line for each file too many or too few."""
    lines = [f"{what} has {name}, which git does not" for name in sorted(found - expected)]
    lines += [f"{what} lacks {name}" for name in sorted(expected - found)]
    if lines:
        sys.exit("\n".join(lines))


def check_wheel(wheel: Path, package: str, files: set[str], also: set[str]) -> dict[str, str]:
    """Compare a wheel with ``files`` of the tree and return its metadata."""
    name, version = wheel.name.split("-")[:2]
    info, inside = f"{name}-{version}.dist-info/", contents(wheel)
    also = {info + each for each in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", *also)}
    require_equal(wheel.name, set(inside), {f"{package}/{each}" for each in files} | also)
    return dict(message_from_string(inside[f"{info}METADATA"].decode()).items())


def main() -> None:
    folder = Path(sys.argv[1])
    sdist, wheel = build("sdist", TREE, folder), build("wheel", TREE, folder)
    with tempfile.TemporaryDirectory() as name:
        beside = Path(name)
        with tarfile.open(sdist) as file:
            file.extractall(beside, filter="data")
        (unpacked,) = beside.iterdir()
        inside = {str(each.relative_to(unpacked)) for each in unpacked.rglob("*") if each.is_file()}
        again = build("wheel", unpacked, beside / "again")
        assert contents(again) == contents(wheel), "the source distribution makes another wheel"
        experiments = build("wheel", TREE / "experiments", beside / "experiments")
        ours = check_wheel(wheel, "potluck", tracked("src/potluck"), {"licenses/LICENSE"})
        theirs = check_wheel(
            experiments, "potluck_experiments", tracked("experiments/potluck_experiments"), set()
        )
    require_equal(wheel.name, set(NEEDED) & set(contents(wheel)), set(NEEDED))
    source = {
        each
        for each in tracked()
        if each.startswith(IN_SOURCE) or each in AT_ROOT or re.fullmatch(r"[^/]+\.md", each)
    }
    require_equal(sdist.name, inside, source | {"PKG-INFO"})

    version = ours["Version"]
    assert theirs["Version"] == version, f"experiments are {theirs['Version']}, not {version}"
    for name, pattern in (
        ("CITATION.cff", rf"^version: {re.escape(version)}$"),
        ("CHANGELOG.md", rf"^## (\[?{re.escape(version)}\]?|Unreleased)"),
    ):
        text = (TREE / name).read_text()
        assert re.search(pattern, text, re.M), f"{name} does not name version {version}"
    assert ours["Description-Content-Type"] == "text/markdown"
    assert "Private :: Do Not Upload" in theirs["Classifier"]
    for file in (wheel, sdist):
        print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB, as git has it")


main()
