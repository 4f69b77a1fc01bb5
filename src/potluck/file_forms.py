"""Forms of a file of rows, told by its first bytes: text, which is opened as UTF-8 whatever packs
it; or something else, which has a name and a way out."""

import codecs
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import zstandard

START_BYTES = 2**14
"""Size of what decides; the rest of a file is not looked at for its form."""
PIECE_BYTES = 2**10
"""Size of what is unpacked at once: of zeros zlib makes 1 MiB of it, zstd 32 MiB."""
MOST_PIECE_BYTES = 2**24
"""Size of what bzip2 and xz may make of it at once, which would be gigabytes."""
MOST_UNPACKED_BYTES, MOST_RECODED_BYTES = 2**30, 2**28
"""Size of what a packed file may hold, and of a text in UTF-16 or with old line ends."""
MOST_UNPACKING_MEMORY_BYTES = 2**28
SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
"""Endings that packing adds to a name; whether a file is packed, its first bytes tell."""
ROWS = "write its rows as JSON lines"
UNPACK = "unpack it"
AGAIN = "download it again"
DATA = "name a file of rows"
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
MOST_CONTROL_SHARE, MOST_CONTROL_SHARE_OF_NO_UTF_8 = 0.1, 0.02
"""Share of control characters in what is text; Latin-1 and others have none either."""


class Unreadable(Exception):
    """A file is no text that can be read; the message says what it is, and the way out.
    ``is_table``: the library ``datasets`` reads it, in a folder."""

    def __init__(self, said: str, *, is_table: bool = False) -> None:
        super().__init__(said)
        self.is_table = is_table


class Form(NamedTuple):
    """A kind of file that is no text of rows."""

    start: bytes
    name: str
    way_out: str
    at: int = 0
    is_table: bool = False


FORMS = (
    Form(b"PAR1", "a parquet file", ROWS, is_table=True),
    Form(b"PARE", "an encrypted parquet file", ROWS),
    Form(b"ARROW1", "an Arrow file", ROWS, is_table=True),
    Form(b"\xff\xff\xff\xff", "an Arrow stream", ROWS, is_table=True),
    Form(b"FEA1", "a Feather file", ROWS),
    Form(b"ORC", "an ORC file", ROWS),
    Form(b"Obj\x01", "an Avro file", ROWS),
    Form(b"SQLite format 3\x00", "an SQLite database", ROWS),
    Form(b"\x89HDF\r\n\x1a\n", "an HDF5 file", ROWS),
    Form(b"\x93NUMPY", "a NumPy array", ROWS),
    Form(b"GGUF", "a GGUF file of a model", DATA),
    Form(b"\x89PNG\r\n", "a PNG picture", DATA),
    Form(b"\xff\xd8\xff", "a JPEG picture", DATA),
    Form(b"\x7fELF", "a program", DATA),
    *(
        Form(b"\x80" + bytes([protocol]), "a pickle, which may run code when it is read", ROWS)
        for protocol in range(2, 6)
    ),
    Form(
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel or Word file", "save it as CSV in UTF-8"
    ),
    Form(b"\x00ustar", "a tar archive", UNPACK, at=256),
    Form(b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
    Form(b"Rar!\x1a", "a RAR archive", UNPACK),
    Form(b"\x04\x22\x4d\x18", "an LZ4 file", UNPACK),
    Form(b"\xff\x06\x00\x00sNaPpY", "a Snappy file", UNPACK),
    Form(b"\x1f\x9d", "a file of compress (.Z)", UNPACK),
    Form(b"LZIP", "an lzip file", UNPACK),
    Form(b"\x5d\x00\x00", "an old LZMA file", UNPACK),
)
OF_TEXT = (
    Form(b"(lp0\n", "an old pickle, which may run code when it is read", ROWS),
    Form(b"(dp0\n", "an old pickle, which may run code when it is read", ROWS),
    Form(b"%PDF-", "a PDF", DATA),
    Form(
        b"version https://git-lfs.github.com/spec/",
        "a pointer of Git LFS and not the data",
        "fetch the data by git lfs pull",
    ),
    Form(
        b"/annex/objects/",
        "a pointer of git-annex and not the data",
        "fetch the data by git annex get",
    ),
)
PAGE = b"<!doctype html", b"<html", b"<head", b"<body"
MARKUP = b"<?xml", b"<!doctype", b"<!--"


class Packing(NamedTuple):
    """A way to pack a file: how it begins, and what unpacks one member of it."""

    name: str
    start: re.Pattern[bytes]
    unpacker: Callable[[], Any]


# Some Pythons are built without these two modules.
def _bzip2() -> Any:
    import bz2

    return bz2.BZ2Decompressor()


def _xz() -> Any:
    import lzma

    return lzma.LZMADecompressor(memlimit=MOST_UNPACKING_MEMORY_BYTES)


def _zstd() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=MOST_UNPACKING_MEMORY_BYTES).decompressobj()


PACKINGS = (
    Packing("gzip", re.compile(rb"\x1f\x8b"), lambda: zlib.decompressobj(wbits=31)),
    Packing("bzip2", re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), _bzip2),
    Packing("xz", re.compile(rb"\xfd7zXZ\x00"), _xz),
    Packing("zstd", re.compile(rb"\x28\xb5\x2f\xfd"), _zstd),
)


class Unpacked(io.RawIOBase):
    """The bytes that a packed file holds, of all its members. Unreadable is raised where it is
    damaged, ends early, or holds more than ``MOST_UNPACKED_BYTES``."""

    def __init__(self, source: IO[bytes], packing: Packing, path: Path) -> None:
        self._pieces = _unpacked(source, packing, path)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _unpacked(source: IO[bytes], packing: Packing, path: Path) -> Iterator[bytes]:
    unpacker, begun, size = None, False, 0
    while packed := source.read(PIECE_BYTES):
        while packed:
            if not begun:
                packed = packed.lstrip(b"\x00")  # a tape, and gzip too, fills up with zeros
                if not packed:
                    break
            try:
                unpacker = unpacker or packing.unpacker()
            except Exception as error:  # of four libraries
                raise _damaged(path, packing, str(error)) from None
            for piece in _pieces(unpacker, packed, path, packing):
                size += len(piece)
                if size > MOST_UNPACKED_BYTES:
                    raise Unreadable(
                        f"{path} is packed by {packing.name} and holds more than "
                        f"{MOST_UNPACKED_BYTES} bytes; give fewer rows, or unpack it"
                    )
                yield piece
            begun = not unpacker.eof
            packed = b""
            if unpacker.eof:
                packed = unpacker.unused_data
                unpacker = None
    if begun:
        raise _damaged(path, packing, "it ends too early")


def _pieces(unpacker: Any, packed: bytes, path: Path, packing: Packing) -> Iterator[bytes]:
    """Unpack some bytes, of what can be bounded MOST_PIECE_BYTES at a time."""
    can_be_bounded = hasattr(unpacker, "needs_input")
    limit = (MOST_PIECE_BYTES,) if can_be_bounded else ()
    try:
        yield unpacker.decompress(packed, *limit)
        while can_be_bounded and not (unpacker.needs_input or unpacker.eof):
            yield unpacker.decompress(b"", *limit)
    except Exception as error:  # of four libraries
        raise _damaged(path, packing, str(error)) from None


def _damaged(path: Path, packing: Packing, why: str) -> Unreadable:
    return Unreadable(
        f"{path} is packed by {packing.name} and cannot be unpacked ({why}); {AGAIN}, or unpack it"
    )


def plain_suffix(path: Path) -> str:
    """Return the ending of a file's name in small letters, without that of what packs it.

    >>> plain_suffix(Path("rows.CSV.gz")), plain_suffix(Path("rows.jsonl"))
    ('.csv', '.jsonl')
    """
    name = path.name.lower()
    for packed in SUFFIXES:
        name = name.removesuffix(packed)
    return Path(name).suffix


@contextmanager
def open_rows(path: Path) -> Iterator[IO[bytes]]:
    """Open a file as UTF-8 text with line ends of this age, unpacked where it is packed. Raise
    Unreadable where it is no text, also while it is read; OSError where there is no file."""
    if path.is_dir():
        raise Unreadable(f"{path} is a folder; name a file in it", is_table=True)
    if path.exists() and not path.is_file():
        raise Unreadable(f"{path} is a pipe or a device, which is read only once; save it first")
    with path.open("rb") as source:
        start = source.read(START_BYTES)
    packing = next((each for each in PACKINGS if each.start.match(start)), None)
    if packing:
        with path.open("rb") as source, io.BufferedReader(Unpacked(source, packing, path)) as plain:
            start = plain.read(START_BYTES)
    _require_text(start, path, packing)
    with path.open("rb") as source:
        stream: IO[bytes] = source
        if packing:
            stream = io.BufferedReader(Unpacked(source, packing, path))
        if encoding := _marked_encoding(start):
            stream = io.BytesIO(_recoded(stream, path, encoding))
        elif b"\r" in start and b"\n" not in start:
            stream = io.BytesIO(_whole(stream, path, "line ends of old Macs").replace(b"\r", b"\n"))
        yield stream


def _marked_encoding(start: bytes) -> str:
    """Tell the encoding that a byte order mark names; "" for UTF-8 or no mark."""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return ""


def _recoded(stream: IO[bytes], path: Path, encoding: str) -> bytes:
    """Read a whole text and write it in UTF-8, with line ends of this age."""
    name = encoding.upper()
    whole = _whole(stream, path, name)
    try:
        text = whole.decode(encoding)
    except UnicodeDecodeError as error:
        raise Unreadable(
            f"{path} begins as {name}, but {error.reason} at byte {error.start}; save it as UTF-8"
        ) from None
    if "\n" not in text:
        text = text.replace("\r", "\n")
    return text.encode("utf-8", "surrogatepass")


def _whole(stream: IO[bytes], path: Path, what: str) -> bytes:
    whole = stream.read(MOST_RECODED_BYTES + 1)
    if len(whole) > MOST_RECODED_BYTES:
        raise Unreadable(
            f"{path} has {what} and more than {MOST_RECODED_BYTES} bytes; save it as UTF-8 with "
            f"line ends of Unix"
        )
    return whole


def _require_text(start: bytes, path: Path, packing: Packing | None) -> None:
    """Raise Unreadable if the first bytes are not those of a text of rows."""
    what = f"{path} is packed by {packing.name} and holds" if packing else f"{path} is"
    if not start:
        raise Unreadable(f"{what} {'nothing' if packing else 'empty (0 bytes)'}; {AGAIN}")
    for form in (*FORMS, *OF_TEXT):
        if start[form.at :].startswith(form.start) and _is_meant(form, start):
            raise Unreadable(f"{what} {form.name}; {form.way_out}", is_table=form.is_table)
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        name, way_out = ("a zip archive", UNPACK) if packing else _zip_form(path)
        raise Unreadable(f"{what} {name}; {way_out}")
    if again := next((each.name for each in PACKINGS if each.start.match(start)), ""):
        raise Unreadable(f"{what} what {again} packed before; {UNPACK} once")
    text = start.removeprefix(codecs.BOM_UTF8).lstrip().lower()
    is_markup = text.startswith(MARKUP)
    if text.startswith(PAGE) or (is_markup and any(mark in text for mark in PAGE)):
        raise Unreadable(f"{what} a page of HTML and not the data; download the file itself")
    if is_markup:
        raise Unreadable(f"{what} XML; {ROWS}")
    if _marked_encoding(start):
        return
    if encoding := _unmarked_encoding(start):
        raise Unreadable(f"{what} text in {encoding} without a mark of that; save it as UTF-8")
    if _is_binary(start):
        raise Unreadable(f"{what} no text, and of no form that is known here; {ROWS}")


def _is_meant(form: Form, start: bytes) -> bool:
    """Tell a file of this form from a text that begins with the same letters."""
    if form in OF_TEXT or not form.start.decode("latin-1").isprintable():
        return True
    return start == form.start or b"\x00" in start or _is_binary(start)


def _zip_form(path: Path) -> tuple[str, str]:
    """Tell what a zip file is by the names in it, and the way out."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return "a damaged zip archive", AGAIN
    if any(name.startswith("xl/") for name in names):
        return "an Excel workbook", "save its sheet as CSV in UTF-8"
    if "mimetype" in names and "content.xml" in names:
        return "an OpenDocument file", "save its sheet as CSV in UTF-8"
    if any(name.endswith("data.pkl") for name in names):
        return "a file of torch.save", ROWS
    if names and all(name.endswith(".npy") for name in names):
        return "NumPy arrays (.npz)", ROWS
    first = f" of {names[0][:60]!r}" if names else " of nothing"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"a zip archive{first}{more}", UNPACK


def _unmarked_encoding(start: bytes) -> str:
    """Tell UTF-16 without a mark by its zeros, at every other place; "" if it is none."""
    even, odd = start[::2].count(0), start[1::2].count(0)
    if 20 * max(even, odd) < len(start) // 2:
        return ""
    encoding = "UTF-16LE" if odd > even else "UTF-16BE"
    # The last sign may be cut.
    text = start[: len(start) // 2 * 2].decode(encoding, "replace")[:-1]
    is_text = all(sign.isprintable() or sign.isspace() for sign in text) and "\ufffd" not in text
    return encoding if is_text else ""


def _is_binary(start: bytes) -> bool:
    share = len(CONTROL.findall(start)) / len(start)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return b"\x00" in start or share > MOST_CONTROL_SHARE_OF_NO_UTF_8
    return share > MOST_CONTROL_SHARE
