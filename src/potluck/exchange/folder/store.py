"""A place where nodes leave files for each other: ``file:///FOLDER``, or a bucket as
``s3://BUCKET/FOLDER``. What fsspec's libraries need beside it they find in the environment."""

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from potluck.exchange.base import ExchangeError

ADDRESS = re.compile(
    r"file:///[^\x00-\x1f\x7f:?*\[\]]+"
    r"|(s3|gs|gcs|az|abfs)://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](/[A-Za-z0-9][A-Za-z0-9._=-]*)*"
)
"""It comes from a recipe, so it names no server, user or option (@, :, ?), chains no file systems
(::), and of fsspec's many only those that store files."""


class Store:
    """The files at a checked ``address``; methods raise OSError, whatever the library raises."""

    def __init__(self, address: str) -> None:
        scheme, _, self._root = address.partition("://")
        self._is_local = scheme == "file"
        if self._is_local and not os.path.isdir(self._root):  # A new one would be nobody else's.
            raise NotADirectoryError(errno.ENOTDIR, "no such folder; make or mount it", self._root)
        with _as_os_error():
            import fsspec

            options = {"use_listings_cache": False, "skip_instance_cache": True}
            self._fs: Any = fsspec.filesystem(scheme, **options)

    def read(self, wanted: Mapping[str, int]) -> dict[str, bytes]:
        """Return the files that are there, of each at most one byte more than ``wanted``. Of a
        folder, a link, a pipe or any other kind of file nothing is read: it is empty."""
        with _as_os_error():
            if self._is_local:
                found = [self._read_local(path, wanted[path] + 1) for path in wanted]
            else:
                places = [f"{self._root}/{path}" for path in wanted]
                ends = [most + 1 for most in wanted.values()]
                found = self._fs.cat_ranges(places, [0] * len(places), ends)
            errors = [one for one in found if isinstance(one, Exception)]
            strange = [one for one in errors if not isinstance(one, FileNotFoundError)]
            if strange and len(errors) == len(found):  # Else it is of one file.
                raise strange[0]
        return {
            path: one for path, one in zip(wanted, found, strict=True) if isinstance(one, bytes)
        }

    def _read_local(self, path: str, most: int) -> bytes | OSError:
        """Read at most so many bytes, from the file that was looked at: another may put a pipe or a
        link in its place at any time, and to open a pipe would wait for ever."""
        # Of a pipe O_NONBLOCK does not wait; of a terminal O_NOCTTY takes nothing over.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY
        try:
            with self._opened(path) as (at, name):
                file = os.open(name, flags, dir_fd=at)
        except OSError as error:
            # A link; a socket, or a device that is not there.
            return b"" if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV) else error
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return b""
            data = bytearray()
            while len(data) < most and (more := os.read(file, most - len(data))):
                data += more
            return bytes(data)
        except OSError as error:
            return error
        finally:
            os.close(file)

    def write(self, path: str, data: bytes) -> None:
        """Write the whole file or none of it."""
        if not self._is_local:
            with _as_os_error():
                self._fs.pipe_file(f"{self._root}/{path}", data)
            return
        beside, new = f".{secrets.token_hex(8)}.part", os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with self._opened(path, make=True) as (at, name):
            try:
                with open(os.open(beside, new, 0o666, dir_fd=at), "wb") as file:
                    file.write(data)
                os.replace(beside, name, src_dir_fd=at, dst_dir_fd=at)
            except BaseException:  # Each try would leave another one.
                with suppress(OSError):
                    os.unlink(beside, dir_fd=at)
                raise

    def remove(self, path: str) -> None:
        if self._is_local:
            with self._opened(path) as (at, name):
                os.unlink(name, dir_fd=at)
            return
        with _as_os_error():
            self._fs.rm_file(f"{self._root}/{path}")

    @contextmanager
    def _opened(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of a file one by one from the root on, through no link: another may put
        one there at any time. Yield its descriptor and the file's name."""
        *folders, name = path.split("/")
        at = os.open(self._root, os.O_DIRECTORY)
        try:
            for folder in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=at)
                above, at = at, os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(above)
            yield at, name
        except NotADirectoryError as error:
            told = f"Not a directory, or a link, which is not followed: {self._root}/{path}"
            raise NotADirectoryError(error.errno, told) from error
        finally:
            os.close(at)

    def names(self, folder: str) -> list[str]:
        with suppress(FileNotFoundError), _as_os_error():
            found = self._fs.ls(f"{self._root}/{folder}", detail=False)
            return [path.rstrip("/").rpartition("/")[2] for path in found]
        return []


@contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except ImportError as error:
        raise OSError(f"{error}; for S3: pip install 'potluck[s3]'") from error
    except Exception as error:  # Each library has classes of its own.
        raise OSError(f"{type(error).__name__}: {error}") from error


def check_endpoints(where: str, endpoints: Sequence[str], *, tls: bool, listen: bool) -> None:
    for endpoint in endpoints:
        if listen or tls or not ADDRESS.fullmatch(endpoint) or endpoint != endpoints[0]:
            raise ExchangeError(
                f"{where} is {endpoint!r}; with transport = 'folder' the nodes meet in one place, "
                f"swarm.connect: file:///FOLDER, s3://BUCKET/FOLDER (or gs, az); without tls"
            )


def free_endpoints(count: int, folder: Path) -> list[str]:
    (place := folder / "files").mkdir(exist_ok=True)
    return [f"file://{place.absolute()}"] * count


def try_endpoint(endpoint: str, *, listen: bool) -> OSError | None:
    probe = f"doctor-{secrets.token_hex(8)}"
    try:
        store = Store(endpoint)
        store.write(probe, b"potluck doctor")
        is_listed = probe in store.names("")
        store.remove(probe)
    except OSError as error:
        return error
    return None if is_listed else OSError("what was written there is not listed")
