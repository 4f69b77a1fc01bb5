"""Files of a user's own code, each a module that any process can import by its name.

    rewards/main.py    potluck.tasks.own_code.in_3f2a9c.file_8b1d04   with a sum of its content
    rewards/helper.py  potluck.tasks.own_code.in_3f2a9c.helper        by ``import helper``

A folder is a package of its own, so two folders may each have a ``helper.py``. What is installed
comes first: a file ``random.py`` beside a reward is no module of it. Callers ask for
``--trust-code`` before.

An entry of ``sys.path`` that is no place of modules tells the folder (``search_path.add_own``). A
process of multiprocessing that is not forked (spawn, forkserver) gets these entries, and finds the
folder there when it is handed a function.
"""

import builtins
import hashlib
import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from potluck.search_path import add_own, behind_others, own_folders

FOLDER, FILE = "in_", "file_"
"""How the names of folders and of files that were asked for begin."""
OF_FOLDER = re.compile(rf"{re.escape(__name__)}\.{FOLDER}[0-9a-f]+\.")


def import_file(file: Path) -> ModuleType:
    """Run a file, once for each content: its functions share a module, another content is another
    one. What it imports from its folder is run anew if it has changed."""
    file = file.resolve()
    folder = str(file.parent)
    add_own(folder)
    package = f"{__name__}.{FOLDER}{_hash(folder.encode())}"
    _forget_changed(package)
    importlib.invalidate_caches()  # a file may be new
    return importlib.import_module(f"{package}.{_own_name(file)}")


def with_own_names(text: str) -> str:
    """Write modules of folders by the names that their user knows."""
    return OF_FOLDER.sub("", text)


class Files:
    """Finds folders and files by their names here, and the modules beside these files."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{__name__}.{FOLDER}"):
            return None
        package, _, own = name.rpartition(".")
        if package == __name__:
            return _folder_spec(name)
        if own.startswith(FILE) and package == _package_of(name):
            return _file_spec(name, path or [])
        spec = PathFinder.find_spec(name, path)
        if spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Source(name, spec.loader.path)
        return spec


class Source(SourceFileLoader):
    """Runs a file whose imports look into its folder too. Without Python's cache of compiled files,
    which is stale where a file changes within a second, at one size."""

    loaded = b""
    """Content that was run."""

    def get_code(self, fullname: str) -> Any:
        self.loaded = self.get_data(self.path)
        return compile(self.loaded, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        importing = Importing(_package_of(module.__name__))
        # Python asks the builtins of the module that imports, also within a function.
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": importing}
        super().exec_module(module)


class Importing:
    """``__import__`` of one folder's modules: ``import helper`` is ``from . import helper`` where
    nothing else has this name."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __call__(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        is_neighbour = level == 0 and _is_beside(top, self._folder)
        full = f"{self._package}.{name}" if is_neighbour else name
        self._require_within(level, globals or {})
        try:
            module = builtins.__import__(full, globals, locals, fromlist or (), level)
        except ImportError as error:
            self._name_places(error, name)
            raise
        if is_neighbour and not fromlist:
            return sys.modules[f"{self._package}.{top}"]
        return module

    def _require_within(self, level: int, globals: Mapping[str, Any]) -> None:
        """Raise ImportError for ``from .. import`` where that would leave the folder."""
        packages = str(globals.get("__package__", self._package)).split(".")
        if level > len(packages) - __name__.count(".") - 1:
            raise ImportError(
                f"a relative import leaves the folder {self._folder}; name the module in full, and "
                f"the function as MODULE:NAME"
            )

    def _name_places(self, error: ImportError, name: str) -> None:
        """Say where a module was looked for, by the names that the user knows."""
        said = with_own_names(str(error))
        error.name = error.name and with_own_names(error.name)
        is_asked = error.name in (name, name.partition(".")[0])
        if isinstance(error, ModuleNotFoundError) and is_asked and self._folder not in said:
            said = f"{said} on Python's path or in {self._folder}"
        error.msg, error.args = said, (said,)

    @property
    def _folder(self) -> str:
        return str(next(iter(sys.modules[self._package].__path__)))


def _is_beside(name: str, folder: str) -> bool:
    """Tell whether a module lies in a folder, and nowhere where it would come first."""
    beside = PathFinder.find_spec(name, [folder])
    if beside is None or name in sys.stdlib_module_names:
        return False
    behind = behind_others()
    before = sys.path[: len(sys.path) - len(behind)]
    found = PathFinder.find_spec(name, before)
    others = (finder for finder in sys.meta_path if finder not in (PathFinder, Files))
    found = found or next(filter(None, (finder.find_spec(name, None) for finder in others)), None)
    # A folder without an __init__.py may hold data alone; a module of that name comes first.
    if found is None or (found.loader is None and beside.loader is not None):
        return True
    place = _place(found)
    return place != folder and place in (os.getcwd(), *behind)


def _place(spec: ModuleSpec) -> str:
    """Return the folder in which a module lies, or a package has its own folder."""
    found = next(iter(spec.submodule_search_locations or ()), spec.origin or "")
    return os.path.dirname(os.path.abspath(found))


def _folder_spec(name: str) -> ModuleSpec | None:
    """Make a package of the user's folder that has this name."""
    for folder in own_folders():
        if name == f"{__name__}.{FOLDER}{_hash(folder.encode())}":
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [folder]
            return spec
    return None


def _file_spec(name: str, folders: Sequence[str]) -> ModuleSpec | None:
    for file in _python_files(folders):
        with suppress(OSError):
            if name.endswith(f".{_own_name(file)}"):
                return spec_from_file_location(name, file, loader=Source(name, str(file)))
    return None


def _python_files(folders: Sequence[str]) -> Iterator[Path]:
    for folder in folders:
        yield from Path(folder).glob("*.py")


def _forget_changed(package: str) -> None:
    """Forget what was imported from a folder if a file of it has changed since."""
    known = [module for name, module in [*sys.modules.items()] if _package_of(name) == package]
    if any(_has_changed(getattr(module.__spec__, "loader", None)) for module in known):
        for module in known:
            sys.modules.pop(module.__name__, None)


def _has_changed(loader: object) -> bool:
    if not isinstance(loader, Source):
        return False
    try:
        return loader.get_data(loader.path) != loader.loaded
    except OSError:
        return True


def _package_of(name: str) -> str:
    """Name the package of a module's folder."""
    return ".".join(name.split(".")[: __name__.count(".") + 2])


def _own_name(file: Path) -> str:
    return f"{FILE}{_hash(file.name.encode())}{_hash(file.read_bytes())}"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


if Files not in sys.meta_path:
    sys.meta_path.insert(0, Files)
