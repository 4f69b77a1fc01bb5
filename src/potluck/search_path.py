"""Where a command looks for modules: never in the current folder, unless its user says so.

A folder that was cloned or unpacked may hold a file that is named as a module of Python
(``statistics.py``), a ``sitecustomize.py``, or the data of a made-up distribution. None of that is
code for a command that is called there (docs/trust.md). This module is imported before all others
of a command, so it imports only what Python itself has loaded.
"""

import os
import sys

LEFT_OUT = "POTLUCK_LEFT_OUT"
"""Variable by which a command tells its processes which entries of PYTHONPATH it left out."""
OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""Folder in which this package lies."""
BEHIND = os.path.join(os.path.abspath(__file__), "folders of trusted code")
"""Entry of ``sys.path`` behind which stands what was added for a user's own code. No folder can
have this name, as a file has its beginning; a process that is started gets it with the others."""


def leave_module_folder() -> None:
    """Take the current folder off the path that ``python -m potluck`` put there, if it did."""
    is_locating = sys.argv[:1] == ["-m"]
    if not is_locating or sys.flags.safe_path:
        return
    module = sys.orig_argv[-len(sys.argv)].removeprefix("-m")
    if module.partition(".")[0] == "potluck":
        del sys.path[0]
        _keep_own_folder()


def leave_current_folder() -> None:
    """Keep what a relative or empty entry of PYTHONPATH means off the path, here and in each
    process that this one starts: it means another folder wherever the user goes.

    Processes of multiprocessing (spawn, forkserver, its resource tracker) look for its modules in
    the current folder first, so they get Python's option ``-P``.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    absolute = [entry for entry in entries if os.path.isabs(entry)]
    relative = [os.path.abspath(entry) for entry in entries if not os.path.isabs(entry)]
    if "PYTHONPATH" in os.environ and relative:
        os.environ["PYTHONPATH"] = os.pathsep.join(absolute)
        os.environ[LEFT_OUT] = os.pathsep.join(dict.fromkeys([*_left_out(), *relative]))
        left_out = set(relative) - {os.path.abspath(entry) for entry in absolute}
        sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) not in left_out]
        _keep_own_folder()
    _start_others_safely()


def add_trusted_folders() -> None:
    """Look for the modules of a user who trusts the code of a recipe also where PYTHONPATH says by
    a relative entry, and in the current folder: behind all other places, so they shadow nothing."""
    for folder in (*_left_out(), os.getcwd()):
        if folder not in sys.path:
            add_last(folder)


def add_last(folder: str) -> None:
    """Have modules of a folder be found behind those of all other places."""
    if BEHIND not in sys.path:
        sys.path.append(BEHIND)
    if folder not in behind_others():
        sys.path.append(folder)


def add_own(folder: str) -> None:
    """Have a folder of a user's own files be known here and in each process that this one starts.
    It is no place of modules: a library that looks for another one does not look there."""
    add_last(BEHIND + folder)


def own_folders() -> list[str]:
    """List the folders of a user's own files."""
    return [entry.removeprefix(BEHIND) for entry in behind_others() if entry.startswith(BEHIND)]


def behind_others() -> list[str]:
    """List the folders of trusted code, which end ``sys.path``."""
    return sys.path[sys.path.index(BEHIND) :] if BEHIND in sys.path else []


def folders_for_child() -> list[str]:
    """List the places where this process finds modules, for one that it starts."""
    return [entry for entry in sys.path if os.path.isabs(entry)]


def _left_out() -> list[str]:
    return [folder for folder in os.environ.get(LEFT_OUT, "").split(os.pathsep) if folder]


def _keep_own_folder() -> None:
    """Have this package be found by its processes, too, if only the current folder has it."""
    if OWN_FOLDER in sys.path:
        return
    sys.path.append(OWN_FOLDER)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [before, OWN_FOLDER]))


def _start_others_safely() -> None:
    import subprocess

    options_of = subprocess._args_from_interpreter_flags  # type: ignore[attr-defined]

    def options() -> list[str]:
        options = list[str](options_of())
        return options if "-P" in options else [*options, "-P"]

    subprocess._args_from_interpreter_flags = options  # type: ignore[attr-defined]
