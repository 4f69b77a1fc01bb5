"""Who wrote a batch: an Ed25519 key for each node, a signature on all that it sends.

A secret key is a file of one line that only its owner can read. A roster is a TOML file with a
line for each node: ``north = "ed25519:..."``, its name and its public key.

What is signed is SHA-256(what + 0x00 + data), not the text itself: Ed25519 reads what it signs
twice, and a batch has hundreds of kilobytes.
"""

import base64
import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from potluck.exchange.base import ExchangeError, WireError
from potluck.types import NODE_NAME

SEAL = b"PTLS"
SIGNATURE_BYTES = 64
KEY_BYTES = 32
PUBLIC, SECRET = "ed25519", "ed25519-secret"
FILE_BYTES = 1 << 20
"""Of a key file or a roster; a larger one is something else."""


class IdentityError(ExchangeError):
    """A key file or a roster that cannot be used; says which, why, and the way out."""


@dataclass(frozen=True, slots=True)
class Key:
    """A node's secret. Its public half is 32 bytes."""

    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def new(cls) -> "Key":
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> "Key":
        """The key that ``write`` put there.

        Raises:
            IdentityError: it cannot be read, others can read it too, or it is no secret key.
        """
        try:
            with open(path, "rb") as file:
                mode, data = os.fstat(file.fileno()).st_mode, file.read(FILE_BYTES)
        except OSError as error:
            hint = "; potluck keys makes one" if isinstance(error, FileNotFoundError) else ""
            raise IdentityError(f"key {path} cannot be read: {error.strerror}{hint}") from error
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            raise IdentityError(
                f"key {path} has mode {stat.S_IMODE(mode):04o}, so others may read it; a secret "
                f"needs 0600: chmod 600 {path}, or, if somebody may have it, make a new one"
            )
        try:
            return cls(Ed25519PrivateKey.from_private_bytes(_unwritten(SECRET, data.decode())))
        except ValueError as error:  # The text stays out of the message: it may be a secret.
            raise IdentityError(
                f"{path} holds no secret key; expected one line, {SECRET}: and 43 characters, as "
                f"potluck keys writes it"
            ) from error

    def write(self, path: Path) -> None:
        """To a new file that only its owner can read.

        Raises:
            IdentityError: something is there already, or it cannot be written.
        """
        line = _written(SECRET, self.private.private_bytes_raw()) + "\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new_file(path, line.encode(), mode=0o600)
        except OSError as error:
            if path.exists():
                raise IdentityError(
                    f"{path} is there already and is left as it is: a node that loses its key is "
                    f"a stranger to the others"
                ) from error
            raise IdentityError(f"key {path} cannot be written: {error.strerror}") from error

    @property
    def public(self) -> bytes:
        return self.private.public_key().public_bytes_raw()

    def seal(self, what: bytes, data: bytes) -> bytes:
        """``data`` behind a signature over ``what`` it is ("batch", "announcement") and itself."""
        return b"".join((SEAL, self.private.sign(_digest(what, data)), data))


def unseal(what: bytes, data: bytes, public: bytes) -> bytes:
    """What ``Key.seal`` was given.

    Raises:
        WireError: it was not sealed by the key whose public half is ``public``.
    """
    at = len(SEAL) + SIGNATURE_BYTES
    if len(data) < at or not data.startswith(SEAL):
        raise WireError(f"{len(data)} bytes came without a signature")
    sealed = data[at:]
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
        key.verify(data[len(SEAL) : at], _digest(what, sealed))
    except (InvalidSignature, ValueError) as error:
        raise WireError("the signature is not by this key") from error
    return sealed


def without_seal(data: bytes) -> bytes:
    """What was sealed, whoever did; for one's own files."""
    return data[len(SEAL) + SIGNATURE_BYTES :] if data.startswith(SEAL) else data


def make_key(path: Path) -> Key:
    """The key at ``path``; where nothing is, a new one is made and written there first.

    Raises:
        IdentityError: what is there is no key, or is not the owner's alone.
    """
    if not path.exists():
        Key.new().write(path)
    return Key.load(path)


def public_text(public: bytes) -> str:
    """A public key as people exchange it.

    >>> public_text(bytes(32))
    'ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'
    """
    return _written(PUBLIC, public)


def public_bytes(text: str) -> bytes:
    """The inverse of ``public_text``.

    Raises:
        IdentityError: it is no public key.
    """
    try:
        return _unwritten(PUBLIC, text)
    except ValueError as error:
        shown = f"{SECRET}:..., a secret" if text.startswith(SECRET) else repr(text[:80])
        raise IdentityError(
            f"{shown} is no public key; expected {PUBLIC}: and 43 letters, digits, - and _"
        ) from error


def roster_line(name: str, key: Key) -> str:
    """What to give to the others: the line of a roster that binds ``name`` to ``key``."""
    return _line(name, key.public)


def read_roster(path: Path) -> dict[str, bytes]:
    """Of each name in a roster its public key.

    Raises:
        IdentityError: no such file, no TOML, a name that no node can have, what is no key,
            or one key under two names.
    """
    try:
        with open(path, "rb") as file:
            tree = tomllib.loads(file.read(FILE_BYTES).decode())
    except OSError as error:
        raise IdentityError(f"roster {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise IdentityError(
            f'roster {path} is not TOML: {error}; expected lines like north = "ed25519:..."'
        ) from error
    roster: dict[str, bytes] = {}
    for name, text in tree.items():
        if not isinstance(text, str):
            raise IdentityError(f'roster {path}: {name} is {text!r}; expected "ed25519:..."')
        try:
            _bind(roster, name, public_bytes(text))
        except IdentityError as error:
            raise IdentityError(f"roster {path}: {name}: {error}") from error
    return roster


def extend_roster(path: Path, keys: Mapping[str, bytes]) -> None:
    """Adds what is not yet there to a roster, or begins one; its other lines stay as they are.

    Raises:
        IdentityError: a name has another key there, a key another name; or as ``read_roster``.
    """
    roster = read_roster(path) if path.exists() else {}
    added = [_line(name, key) for name, key in keys.items() if _bind(roster, name, key)]
    if added:
        before = path.read_text() if path.exists() else ""
        gap = "\n" if before and not before.endswith("\n") else ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, before + gap + "\n".join(added) + "\n")
        except OSError as error:
            raise IdentityError(f"roster {path} cannot be written: {error.strerror}") from error


def roster_text(roster: Mapping[str, bytes]) -> str:
    """A whole roster."""
    return "".join(_line(name, roster[name]) + "\n" for name in sorted(roster))


def new_file(path: Path, data: bytes, *, mode: int) -> None:
    """Writes a file that is not there yet, never with a wider mode; FileExistsError where it is."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except OSError:
        path.unlink()
        raise


def replace_file(path: Path, text: str) -> None:
    """Whoever reads ``path`` finds the old text or the new one, never a part."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    os.replace(part, path)


def _digest(what: bytes, data: bytes) -> bytes:
    digest = hashlib.sha256(what + b"\0")
    digest.update(data)
    return digest.digest()


def _line(name: str, public: bytes) -> str:
    if not NODE_NAME.fullmatch(name):
        raise IdentityError(f"{name!r} is no name of a node; expected {NODE_NAME.pattern}")
    return f'{name} = "{public_text(public)}"'


def _bind(roster: dict[str, bytes], name: str, public: bytes) -> bool:
    """Adds to ``roster``; whether it was new there."""
    if not NODE_NAME.fullmatch(name):
        raise IdentityError(f"{name!r} is no name of a node; expected {NODE_NAME.pattern}")
    for other, key in roster.items():
        if (other == name) != (key == public):
            raise IdentityError(
                f"{other!r} has {public_text(key)} and {name!r} {public_text(public)}; a name "
                f"needs one key and a key one name: remove one of the lines"
            )
    fresh = name not in roster
    roster[name] = public
    return fresh


def _written(kind: str, raw: bytes) -> str:
    return f"{kind}:{base64.urlsafe_b64encode(raw).decode().rstrip('=')}"


def _unwritten(kind: str, text: str) -> bytes:
    found = re.fullmatch(rf"{kind}:([A-Za-z0-9_-]{{43}})\n?", text)
    if found and _written(kind, raw := base64.urlsafe_b64decode(f"{found[1]}=")) == text.strip():
        return raw
    raise ValueError(f"expected {kind}:")  # Also where the last letter has bits too many.
