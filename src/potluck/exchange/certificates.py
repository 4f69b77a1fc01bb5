"""Certificates of a swarm's own: who has none gets no connection (mutual TLS).

FOLDER/ca.pem  ca.key           the swarm's authority; ca.key stays with who admits nodes
FOLDER/NAME/   ca.pem NAME.pem NAME.key     all that the node NAME needs, to be given to it
"""

import datetime
import ipaddress
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from potluck.exchange.base import ExchangeError
from potluck.exchange.identity import new_file
from potluck.types import NODE_NAME

LOCAL = ("localhost", "127.0.0.1", "::1")
DAYS = 365
AUTHORITY_DAYS = 3650
PEM = serialization.Encoding.PEM
BEFORE = datetime.timedelta(days=1)
"""A certificate holds from a day before it is made: clocks are wrong."""


class CertificateError(ExchangeError):
    """A certificate that cannot be made or used; says which, why, and the way out."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """What a node shows (certificate, key) and what it holds others' certificates against."""

    ca: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def certificate_files(folder: Path, name: str) -> CertificateFiles:
    """Where ``name``'s files are: in ``folder/name`` where that is there, else in ``folder``."""
    own = folder / name if (folder / name).is_dir() else folder
    return CertificateFiles(own / "ca.pem", own / f"{name}.pem", own / f"{name}.key")


def write_certificates(
    folder: Path, names: Sequence[str], hosts: Sequence[str] = LOCAL, days: int = DAYS
) -> tuple[Path, ...]:
    """Makes a key and a certificate for each of ``names``, and an authority where none is yet.

    Args:
        folder: whose authority signs. One that is there is used again, so nodes can join later.
        hosts: DNS names and addresses at which the nodes are reached; all nodes may use all.
        days: for how long the certificates hold; the authority's own holds for ten years at least.

    Returns:
        The folder of each node.

    Raises:
        CertificateError: a name or host that cannot be, a node that has files already, an
            authority that cannot be read, or a disk that takes no files.
    """
    if bad := [name for name in names if not NODE_NAME.fullmatch(name) or name == "ca"]:
        raise CertificateError(
            f"{bad[0]!r} cannot be a node's name here; expected {NODE_NAME.pattern}, and not 'ca'"
        )
    if days < 1:
        raise CertificateError(f"certificates for {days} days hold for none; expected 1 or more")
    if there := [n for n in names if (folder / n).exists()]:
        raise CertificateError(
            f"{folder / there[0]} is there already and is left as it is; remove it to give "
            f"{there[0]!r} a new key, or leave {there[0]!r} out"
        )
    if len(set(names)) != len(names):
        raise CertificateError(f"a name comes twice among {', '.join(names)}")
    alternatives = [_host(host) for host in hosts]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        authority = _authority(folder, max(days, AUTHORITY_DAYS))
        for name in names:
            _write_node(folder / name, name, authority, alternatives, days)
    except OSError as error:
        raise CertificateError(f"{error.filename or folder}: {error.strerror}") from error
    return tuple(folder / name for name in names)


def check_certificate(files: CertificateFiles, name: str) -> None:
    """Looks at what TLS would refuse without a word of why, or wait for without an end.

    Raises:
        CertificateError: a file is missing or no PEM, the key belongs to another certificate,
            the certificate to another name or authority, or its time is over or not yet come.
    """
    ca = _read_certificate(files.ca)
    certificate = _read_certificate(files.certificate)
    key = _read_key(files.key)
    if certificate.public_key() != key.public_key():
        raise CertificateError(f"{files.key} is not the key of {files.certificate}")
    if (theirs := _common_name(certificate)) != name:
        raise CertificateError(
            f"{files.certificate} is for {theirs!r}, and this node is {name!r}; potluck "
            f"certificates makes one for {name!r}"
        )
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise CertificateError(f"{files.certificate} was not signed by {files.ca}") from error
    now = datetime.datetime.now(datetime.UTC)
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not start <= now <= end:
        raise CertificateError(
            f"{files.certificate} holds from {start:%Y-%m-%d} to {end:%Y-%m-%d}, and the clock "
            f"here says {now:%Y-%m-%d %H:%M}; set the clock, or make a new certificate"
        )


def _authority(folder: Path, days: int) -> _Authority:
    certificate, key = folder / "ca.pem", folder / "ca.key"
    if certificate.exists() or key.exists():
        found = _Authority(_read_certificate(certificate), _read_key(key))
        if found.certificate.public_key() != found.key.public_key():
            raise CertificateError(f"{key} is not the key of {certificate}")
        return found
    new = ec.generate_private_key(ec.SECP256R1())
    name = "potluck swarm"
    made = (
        _unsigned(name, _distinguished(name), new.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(new, hashes.SHA256())
    )
    new_file(key, _pem(new), mode=0o600)
    new_file(certificate, made.public_bytes(PEM), mode=0o644)
    return _Authority(made, new)


def _write_node(
    folder: Path, name: str, authority: _Authority, hosts: Iterable[x509.GeneralName], days: int
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    both = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    certificate = (
        _unsigned(name, authority.certificate.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    folder.mkdir(mode=0o700)
    files = certificate_files(folder.parent, name)
    new_file(files.key, _pem(key), mode=0o600)
    new_file(files.certificate, certificate.public_bytes(PEM), mode=0o644)
    new_file(files.ca, authority.certificate.public_bytes(PEM), mode=0o644)


def _unsigned(
    name: str, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    try:
        end = now + datetime.timedelta(days=days)
    except OverflowError as error:
        raise CertificateError(f"{days} days end beyond the calendar; 365 are a year") from error
    return (
        x509.CertificateBuilder()
        .subject_name(_distinguished(name))
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(end)
    )


def _distinguished(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _common_name(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not host or not all(part and part.isascii() for part in host.split(".")) or ":" in host:
        raise CertificateError(f"{host!r} is no host; expected a DNS name or an address, no port")
    return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        hint = "; potluck certificates makes it" if isinstance(error, FileNotFoundError) else ""
        raise CertificateError(f"{path} cannot be read: {error.strerror}{hint}") from error


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise CertificateError(f"{path} is no certificate in PEM") from error


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    data = _read(path)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise CertificateError(f"{path} can be read by others; a key needs 0600: chmod 600 {path}")
    try:
        key = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{path} is no private key in PEM without a password") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{path} is no elliptic-curve key, as potluck certificates makes it")
    return key
