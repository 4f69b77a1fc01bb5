"""The keys of nodes: an Ed25519 key for each, and its signature on all that the node sends; and the
check of a node's certificate, by which TLS lets it in.

A secret key is a file of one line that only its owner can read. A roster is a TOML file with a
line for each node: ``north = "ed25519:..."``, its name and its public key.
What is signed is SHA-256(what + 0x00 + data), not the text itself: Ed25519 reads what it signs
twice, and a batch has hundreds of kilobytes.
"""

import base64
import datetime
import hashlib
import logging
import os
import re
import stat
import threading
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from potluck.exchange.base import ExchangeError, WireError
from potluck.files import write_atomically
from potluck.types import NODE_NAME

SIGNED = b"PTLS"
SIGNATURE_BYTES, KEY_BYTES = 64, 32
PUBLIC, SECRET = "ed25519", "ed25519-secret"
BATCH = b"batch"
"""Kind of data that the signature of a batch covers too: it does not fit an announcement."""
CERTIFIES = "deploy/certificates.sh of the repository makes one"
FILE_BYTES = 1 << 20
STRANGERS = 64
"""Most strangers that are remembered, and other names under which refusals are counted."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Key:
    """A node's secret. Its public half is 32 bytes."""

    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def new(cls) -> "Key":
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> "Key":
        """Read a key; raise ExchangeError if the file holds none, or others can read it."""
        data = read_file(path, "key", "potluck keys makes one", is_secret=True)
        try:
            return cls(Ed25519PrivateKey.from_private_bytes(_unwritten(SECRET, data.decode())))
        except ValueError as error:  # The text stays out of the message: it may be a secret.
            raise ExchangeError(
                f"{path} holds no secret key; expected one line, {SECRET}: and 43 characters, as "
                f"potluck keys writes it"
            ) from error

    def write(self, path: Path) -> None:
        """Write the key to a new file that only its owner can read; ExchangeError if it cannot."""
        line = _written(SECRET, self.private.private_bytes_raw()) + "\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb", opener=lambda place, how: os.open(place, how, 0o600)) as file:
                try:
                    file.write(line.encode())
                    file.flush()
                except OSError:
                    path.unlink()
                    raise
        except OSError as error:
            if path.exists():
                raise ExchangeError(
                    f"{path} is there already and is left as it is: a node that loses its key is "
                    f"a stranger to the others"
                ) from error
            raise ExchangeError(f"key {path} cannot be written: {error.strerror}") from error

    @property
    def public(self) -> bytes:
        return self.private.public_key().public_bytes_raw()

    def sign(self, what: bytes, data: bytes) -> bytes:
        """Return ``data`` behind a signature over its kind (``BATCH``, ...) and itself."""
        return b"".join((SIGNED, self.private.sign(_digest(what, data)), data))


def verify(what: bytes, data: bytes, public: bytes) -> bytes:
    """Return the data that ``Key.sign`` was given; raise WireError if another key signed it."""
    at = len(SIGNED) + SIGNATURE_BYTES
    if len(data) < at or not data.startswith(SIGNED):
        raise WireError(f"{len(data)} bytes came without a signature", "forged")
    signed = data[at:]
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
        key.verify(data[len(SIGNED) : at], _digest(what, signed))
    except (InvalidSignature, ValueError) as error:
        raise WireError("the signature is not by this key", "forged") from error
    return signed


def without_signature(data: bytes) -> bytes:
    """Return the data without its signature, unchecked; for a node's own files."""
    return data[len(SIGNED) + SIGNATURE_BYTES :] if data.startswith(SIGNED) else data


def make_key(path: Path) -> Key:
    """Return the key at ``path``, made there if there is none; ExchangeError as ``Key.load``."""
    if not path.exists():
        Key.new().write(path)
    return Key.load(path)


def public_text(public: bytes) -> str:
    """Return a public key as people exchange it, ``ed25519:`` and 43 characters."""
    return _written(PUBLIC, public)


def roster_line(name: str, key: Key) -> str:
    """Return the line to give to the others: it binds ``name`` to ``key`` in a roster."""
    return roster_text({name: key.public}).rstrip("\n")


def read_roster(path: Path) -> dict[str, bytes]:
    """Read public keys by name; raise ExchangeError for a bad file, name or key, or a key twice."""
    try:
        tree = tomllib.loads(read_file(path, "roster").decode())
    except (ValueError, RecursionError) as error:
        raise ExchangeError(
            f'roster {path} is not TOML: {error}; expected lines like north = "ed25519:..."'
        ) from error
    roster: dict[str, bytes] = {}
    for name, text in tree.items():
        if not NODE_NAME.fullmatch(name):
            raise ExchangeError(f"roster {path}: {name}: {_no_name(name)}")
        if not isinstance(text, str):
            raise ExchangeError(f'roster {path}: {name} is {text!r}; expected "ed25519:..."')
        try:
            public = _unwritten(PUBLIC, text)
        except ValueError as error:
            shown = f"{SECRET}:..., a secret" if text.startswith(SECRET) else repr(text[:80])
            raise ExchangeError(
                f"roster {path}: {name}: {shown} is no public key; expected {PUBLIC}: and 43 "
                f"letters, digits, - and _"
            ) from error
        for other, key in roster.items():
            if key == public:
                raise ExchangeError(
                    f"roster {path}: {other!r} and {name!r} both have {public_text(public)}; a "
                    f"name needs one key and a key one name: remove one of the lines"
                )
        roster[name] = public
    return roster


def roster_text(roster: Mapping[str, bytes]) -> str:
    return "".join(f'{name} = "{public_text(roster[name])}"\n' for name in sorted(roster))


class KnownKeys:
    """The key that each name must sign with: the roster's, or else its first one, which is
    *pinned*: written to the file ``pins``, in the form of a roster, and required from then on.
    Strangers may take part if ``open``. Any thread may ask."""

    def __init__(
        self, roster: Mapping[str, bytes], members: Collection[str], open: bool, pins: Path
    ) -> None:
        self._roster, self._members = dict(roster), frozenset(members)
        self.open, self._file = open, pins
        self._lock = threading.Lock()
        pinned = read_roster(pins) if pins.exists() else {}
        # A roster was written by hand, so it goes before what was only seen.
        own = set(self._roster.values())
        self._pins = {n: k for n, k in pinned.items() if n not in self._roster and k not in own}

    def admit(self, name: str) -> None:
        if not NODE_NAME.fullmatch(name):
            raise WireError(_no_name(name), "unknown sender")
        if not (self.open or name in self._members or name in self._roster):
            raise WireError(
                f"{name!r} is no member and the swarm is closed; add its line to the roster, or "
                f"set [swarm] open = true",
                "unknown sender",
            )

    def names(self) -> frozenset[str]:
        return self._members | self._roster.keys()

    def known(self, name: str) -> bytes | None:
        with self._lock:
            return self._roster.get(name) or self._pins.get(name)

    def public_key(self, name: str, offered: bytes) -> bytes:
        """Return ``offered`` if it is the key that ``name`` must sign with; raise WireError if the
        name has another one, or may not take part. Where none is known, call it after ``verify`` of
        a message that names ``name``: a first key is pinned, and nobody may pin another's."""
        self.admit(name)
        with self._lock:
            known, source = self._roster.get(name), "the roster has"
            if known is None:
                if name not in self._pins:
                    self._pin(name, offered)
                known, source = self._pins[name], f"{self._file} has, from when it was first seen,"
        if offered != known:
            raise WireError(
                f"{name!r} signs with {public_text(offered)}, but {source} {public_text(known)}; "
                f"if {name!r} really has a new key, change its line there and start again",
                "forged",
            )
        return known

    def _pin(self, name: str, offered: bytes) -> None:
        for other, key in (*self._roster.items(), *self._pins.items()):
            if key == offered:
                raise WireError(
                    f"{name!r} signs with {public_text(offered)}, the key of {other!r}; each node "
                    f"needs a key of its own: potluck keys makes one",
                    "forged",
                )
        strangers = sum(known not in self._members for known in self._pins)
        if name not in self._members and strangers >= STRANGERS:
            raise WireError(
                f"{name!r} is one stranger too many: {strangers} are known already; add it to the "
                f"roster, or remove lines from {self._file} and start again",
                "unknown sender",
            )
        self._pins[name] = offered
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, roster_text(self._pins).encode())
        except OSError as error:  # The run goes on; the next pin writes all of them again.
            what = f"{self._file} cannot be written: {error.strerror}"
            _log.warning("%s; a restart forgets the key of %r", what, name)


def certificate_files(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """Return the paths of the authority's certificate, and of the certificate and key of ``name``:
    in ``folder/name`` if it exists, else in ``folder``."""
    own = folder / name if (folder / name).is_dir() else folder
    return own / "ca.pem", own / f"{name}.pem", own / f"{name}.key"


def check_certificate(folder: Path, name: str) -> datetime.datetime:
    """Return the time at which the certificate of ``name`` ends. Raise ExchangeError for what TLS
    would refuse without a reason, or wait for without an end."""
    ca, path, key = certificate_files(folder, name)
    authority, own = _read_certificate(ca), _read_certificate(path)
    try:
        secret = load_pem_private_key(read_file(key, "key", CERTIFIES, is_secret=True), None)
    except (ValueError, TypeError) as error:
        raise ExchangeError(f"{key} is no private key in PEM without a password") from error
    if own.public_key() != secret.public_key():
        raise ExchangeError(f"{key} is not the key of {path}")
    names = own.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    if (theirs := str(names[0].value) if names else "") != name:
        raise ExchangeError(f"{path} is for {theirs!r}, and this node is {name!r}; {CERTIFIES}")
    try:
        own.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise ExchangeError(f"{path} was not signed by {ca}") from error
    now, end = datetime.datetime.now(datetime.UTC), own.not_valid_after_utc
    if not own.not_valid_before_utc <= now <= end:
        raise ExchangeError(
            f"{path} holds from {own.not_valid_before_utc:%Y-%m-%d} to {end:%Y-%m-%d}, and the "
            f"clock here says {now:%Y-%m-%d %H:%M}; set the clock, or make a new certificate"
        )
    return end


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(read_file(path, "certificate", CERTIFIES))
    except ValueError as error:
        raise ExchangeError(f"{path} is no certificate in PEM") from error


def read_file(path: Path, what: str, way_out: str = "", *, is_secret: bool = False) -> bytes:
    """Read a megabyte of a file at most; raise ExchangeError if it cannot be read, with the
    ``way_out`` if it is not there, or if others can read what ``is_secret``."""
    try:
        with open(path, "rb") as file:
            mode, data = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read(FILE_BYTES)
    except OSError as error:
        hint = f"; {way_out}" if way_out and isinstance(error, FileNotFoundError) else ""
        raise ExchangeError(f"{what} {path} cannot be read: {error.strerror}{hint}") from error
    if is_secret and os.name == "posix" and mode & 0o077:
        raise ExchangeError(
            f"{what} {path} has mode {mode:04o}, so others may read it; a secret needs 0600: chmod "
            f"600 {path}, or, if somebody may have it, make a new one"
        )
    return data


def _digest(what: bytes, data: bytes) -> bytes:
    digest = hashlib.sha256(what + b"\0")
    digest.update(data)  # No copy of hundreds of kilobytes.
    return digest.digest()


def _no_name(name: str) -> str:
    return f"{name[:64]!r} is no name of a node; expected {NODE_NAME.pattern}"


def _written(kind: str, raw: bytes) -> str:
    return f"{kind}:{base64.urlsafe_b64encode(raw).decode().rstrip('=')}"


def _unwritten(kind: str, text: str) -> bytes:
    found = re.fullmatch(rf"{kind}:([A-Za-z0-9_-]{{43}})\n?", text)
    if found and _written(kind, raw := base64.urlsafe_b64decode(f"{found[1]}=")) == text.strip():
        return raw
    raise ValueError(f"expected {kind}:")  # Also where the last letter has bits too many.
