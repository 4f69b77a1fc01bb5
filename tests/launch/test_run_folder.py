"""A run's folder is one process's at a time, and says what is wrong when it cannot be written."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

from displays import Listener
from launch.runs import recipes
from potluck.files import remedy
from potluck.launch import nodes as launch_nodes
from potluck.launch import rounds as launch_rounds
from potluck.launch.in_process import join, run
from potluck.launch.local_swarm import run_local_swarm
from potluck.node.storage.folder import LOCK, disk_errors_explained, exclusive, remove_parts
from potluck.node.storage.record import Record
from potluck.types import RunFolderError

HOLDER = """
import os, subprocess, sys, time
from pathlib import Path
from potluck.node.storage.folder import exclusive

with exclusive(Path(sys.argv[1]), print):
    {first}
    print("held", flush=True)
    time.sleep(300)
"""


recipe = recipes("rounds=2", "checkpoint_every=1")


def silent(said):
    raise AssertionError(said)


@contextmanager
def holder_of(folder, first="pass"):
    """Another process that holds the lock of ``folder``, and has done ``first`` with it."""
    words = [sys.executable, "-c", HOLDER.format(first=first), str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, process_group=0) as holder:
        try:
            assert holder.stdout.readline() == b"held\n"
            yield holder
        finally:
            with suppress(ProcessLookupError):
                os.killpg(holder.pid, signal.SIGKILL)


def test_a_held_folder_is_refused_in_a_line_with_its_holder_and_the_way_out(tmp_path):
    folder = tmp_path / "run" / "small"
    with holder_of(folder) as holder:
        with pytest.raises(RunFolderError) as refused, exclusive(folder, silent):
            pass
        line = str(refused.value)
        assert line.startswith(f"{folder} is in use by process {holder.pid} on ")
        assert "--out" in line
        assert "\n" not in line
        assert f"process {holder.pid} " in (folder / LOCK).read_text()  # it is still known


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(RunFolderError, match=r"cannot make the folder .*file/run: Not a directory;"),
        exclusive(tmp_path / "file/run", silent),
    ):
        pass


@pytest.mark.parametrize("child", [
    "os.fork() or time.sleep(300)", "subprocess.Popen(['sleep', '300'])",
])  # fmt: skip
def test_a_child_that_outlives_the_holder_keeps_no_lock(tmp_path, child):
    """As a library's helper may: the lock goes with the process that took it."""
    with holder_of(tmp_path / "run", child) as holder:
        holder.kill()
        assert holder.wait() == -signal.SIGKILL
        # A child that was just made may not have run yet; it lets go when it does.
        for left in range(99, -1, -1):
            try:
                with exclusive(tmp_path / "run", silent):
                    assert f"process {os.getpid()} " in (tmp_path / "run" / LOCK).read_text()
                    break
            except RunFolderError:
                if not left:
                    raise
                time.sleep(0.1)


def test_nothing_is_left_of_a_folder_in_which_nothing_was_begun(tmp_path):
    (tmp_path / "there").mkdir()
    with exclusive(tmp_path / "a" / "b", silent), exclusive(tmp_path / "there", silent):
        assert (tmp_path / "a" / "b" / LOCK).is_file()
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    with exclusive(tmp_path / "a", silent):
        (tmp_path / "a" / "recipe.json").touch()
    assert (tmp_path / "a" / "recipe.json").is_file()


def test_a_folder_that_is_removed_meanwhile_hides_no_error(tmp_path):
    def ends():
        with exclusive(tmp_path / "run", silent):
            shutil.rmtree(tmp_path / "run")
            raise ValueError("the real one")

    with pytest.raises(ValueError, match="the real one"):
        ends()
    with exclusive(tmp_path / "run", silent):
        pass


def test_a_file_system_without_locks_is_told_of_and_used(tmp_path, monkeypatch):
    def none(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", none)
    said = []
    with exclusive(tmp_path / "run", said.append):
        (tmp_path / "run" / "x").touch()
    assert said == [
        f"{tmp_path / 'run'} is on a file system without locks: let no second process use it"
    ]


def test_what_else_is_wrong_with_a_lock_is_not_taken_for_that(tmp_path, monkeypatch):
    def broken(descriptor, operation):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("fcntl.flock", broken)
    with pytest.raises(OSError, match="Input/output error"), exclusive(tmp_path / "run", silent):
        pass


def test_a_run_holds_its_folder_and_those_of_its_nodes_and_lets_go_at_the_end(recipe, tmp_path):
    folder, refused = tmp_path / "run", []

    class Second(Listener):
        def round_done(self, node, report):
            for again in (
                lambda: run(recipe(), folder, resume=True),
                lambda: run_local_swarm(recipe(), folder, resume=True, display=Listener()),
                lambda: join(recipe(), "small", folder, resume=True),
            ):
                with pytest.raises(RunFolderError, match="is in use by process") as error:
                    again()
                refused.append(str(error.value).split(" is in use")[0])

    assert run(recipe(), folder, display=Second()).rounds == 2
    assert set(refused) == {str(folder), str(folder / "small")}
    assert len(refused) == 3 * 2 * 2
    assert run(recipe("rounds=3"), folder, resume=True).rounds == 3


def test_a_second_fresh_run_is_refused_while_the_first_has_written_nothing(recipe, tmp_path):
    """Neither is the folder "taken" by the lock alone."""
    with holder_of(tmp_path / "run"):
        with pytest.raises(RunFolderError, match="is in use by process"):
            run(recipe(), tmp_path / "run")
        with pytest.raises(RunFolderError, match="is in use by process"):
            run_local_swarm(recipe(), tmp_path / "run", resume=False, display=Listener())
    assert [path.name for path in (tmp_path / "run").iterdir()] == [LOCK]
    assert run(recipe("rounds=1"), tmp_path / "run").rounds == 1


def test_what_a_killed_process_left_unfinished_is_gone_at_the_next_start(recipe, tmp_path):
    folder = tmp_path / "run"
    run(recipe(), folder)
    own = folder / "small"
    left = [
        *(own / "metrics.jsonl.17.part", own / "rounds" / "000001.ptlk.17.part"),
        *(own / "sent" / "000001.ptlk.17.part", folder / "recipe.json.17.part"),
    ]
    (own / "sent").mkdir()
    for path in left:
        path.write_text("half")
    (own / "checkpoints" / "000003.part").mkdir()
    (own / "checkpoints" / "000003.part" / "config.json").write_text("{")
    run(recipe("rounds=3"), folder, resume=True)
    assert list(folder.rglob("*.part")) == []
    assert (own / "checkpoints" / "000003" / "config.json").is_file()


def test_what_another_process_is_writing_stays(recipe, tmp_path):
    """The second start is refused before it cleans; and a node cleans its own folder alone."""
    folder = tmp_path / "run"
    run(recipe(), folder)
    part = folder / "small" / "rounds" / "000009.ptlk.17.part"
    part.write_text("half")
    with holder_of(folder / "small"), pytest.raises(RunFolderError, match="small is in use"):
        run(recipe("rounds=3"), folder, resume=True)
    assert part.exists()
    remove_parts(folder / "large")
    assert part.exists()


@contextmanager
def files_of_at_most(size):
    """As a full disk: a write beyond it fails, and what fits is written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_line_that_does_not_fit_leaves_the_file_as_it_was(tmp_path):
    record = Record(tmp_path / "north", run="run", node="north")
    record.add("metrics", [{"round": 0}])
    path = tmp_path / "north" / "metrics.jsonl"
    before = path.read_bytes()
    with files_of_at_most(len(before) + 5), pytest.raises(OSError) as error:
        record.add("metrics", [{"round": 1, "loss": 0.5}])
    assert path.read_bytes() == before
    assert error.value.filename == str(path)
    record.add("metrics", [{"round": 1}])
    assert path.read_bytes() == before + b'{"round": 1}\n'


@pytest.mark.parametrize("file", ["recipe.json", "completions.jsonl"])
def test_a_run_that_cannot_write_ends_in_a_line_that_says_how_to_go_on(
    recipe, tmp_path, monkeypatch, file
):
    """The size that files may have stands for the disk. What fits is one round, or nothing."""
    folder = tmp_path / "run"
    if file == "completions.jsonl":
        run(recipe("rounds=1"), folder)
        size = (folder / "large" / file).stat().st_size + 10
        # Of what a round writes only this file grows; the others must fit.
        monkeypatch.setattr(launch_rounds.checkpoint, "save", lambda *_, **__: None)
        monkeypatch.setattr(Record, "truncate_from", lambda self, round, heads: [])
        monkeypatch.setattr(Record, "keep_round", lambda self, round, arrived: 0)
        monkeypatch.setattr(launch_nodes, "_write_recipe", lambda *_: None)
        expected = rf"cannot write {folder}/large/completions.jsonl: File too large; raise the "
        expected += r"limit of a file's size \(ulimit -f\), then go on with --resume"
    else:
        size = 100
        expected = rf"cannot write {folder}/recipe.json: File too large; .* then start it again"
    with files_of_at_most(size), pytest.raises(RunFolderError, match=expected):
        run(recipe("rounds=2"), folder, resume=file != "recipe.json")
    monkeypatch.undo()
    assert run(recipe("rounds=2"), folder, resume=folder.exists()).rounds == 2


@pytest.mark.parametrize("number, what, way", [
    (errno.ENOSPC, "cannot write metrics.jsonl", "make room there"),
    (errno.EDQUOT, "cannot write metrics.jsonl", "make room there"),
    (errno.EROFS, "cannot write metrics.jsonl", "mount it writable again"),
    (errno.EFBIG, "cannot write metrics.jsonl", "raise the limit of a file's size (ulimit -f)"),
    (errno.EACCES, "metrics.jsonl", "give this user access to it"),
    (errno.EPERM, "metrics.jsonl", "give this user access to it"),
    (errno.EIO, "metrics.jsonl", "check the disk"),
])  # fmt: skip
def test_each_failure_of_a_disk_has_its_way_out(tmp_path, number, what, way):
    """One that a read may have as well is not called one of a write."""
    with pytest.raises(RunFolderError) as error, disk_errors_explained(tmp_path):
        raise OSError(number, os.strerror(number), "metrics.jsonl")
    said = os.strerror(number)
    assert str(error.value) == f"{what}: {said}; {way}, then start it again"
    assert remedy(ValueError(f"I/O error: {said} (os error {number})")) == way  # of safetensors


@pytest.mark.parametrize("error", [OSError("no such model"), ConnectionResetError(104, "reset")])
def test_an_error_that_is_none_of_a_disk_stays_what_it_is(tmp_path, error):
    with pytest.raises(type(error)) as same, disk_errors_explained(tmp_path):
        raise error
    assert same.value is error
