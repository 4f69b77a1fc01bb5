"""Certificates of a swarm's own: a node without one gets no connection (mutual TLS).

FOLDER/ca.pem  ca.key           the swarm's authority; ca.key stays with the person who admits nodes
FOLDER/NAME/   ca.pem NAME.pem NAME.key     all that the node NAME needs, to be given to it
"""

import datetime
import ipaddress
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from potluck.exchange.base import ExchangeError
from potluck.exchange.keys.keys import new_file, read_file
from potluck.types import NODE_NAME

LOCAL = ("localhost", "127.0.0.1", "::1")
AUTHORITY, AUTHORITY_DAYS = "potluck swarm", 3650
HOST = re.compile(r"[A-Za-z0-9*_-]+(\.[A-Za-z0-9_-]+)*")
PEM = serialization.Encoding.PEM
MAKES_IT = "potluck certificates makes it"
BEFORE = datetime.timedelta(days=1)
"""Time before its making from which a certificate holds: clocks are wrong."""
_Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]
RELAYS = ("relay", *(f"relay-{at}" for at in range(2, 9)))
"""Names in the certificates of routers, which may pass on what any node said: with TLS, no node may
have one."""
SPEAKING = ["put", "delete", "reply", "declare_queryable", "liveliness_token"]
ALONE = "live", "ann", "status"
"""Kinds of keys of which a node has one each, under its name."""
ASKING = ["declare_subscriber", "query", "liveliness_query", "declare_liveliness_subscriber"]


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Files that a node shows (certificate, key) and verifies others' against (ca)."""

    ca: Path
    certificate: Path
    key: Path


def certificate_files(folder: Path, name: str) -> CertificateFiles:
    """Return the paths of ``name``'s files: in ``folder/name`` if it exists, else in ``folder``."""
    own = folder / name if (folder / name).is_dir() else folder
    return CertificateFiles(own / "ca.pem", own / f"{name}.pem", own / f"{name}.key")


def write_certificates(
    folder: Path, names: Sequence[str], hosts: Sequence[str] = LOCAL, days: int = 365
) -> tuple[Path, ...]:
    """Make a key and a certificate for each of ``names``, and an authority where none is yet;
    return the folder of each node.

    The authority in ``folder`` is used again, so nodes can join later; it is valid for ten years,
    the certificates for ``days``. All nodes may use all of ``hosts``, names and addresses.
    Raise ExchangeError for a wrong name or host, files that exist, a bad authority, a full disk.
    """
    if bad := [name for name in names if not NODE_NAME.fullmatch(name) or name == "ca"]:
        expected = f"expected {NODE_NAME.pattern}, and not 'ca'"
        raise ExchangeError(f"{bad[0]!r} cannot be a node's name here; {expected}")
    if len(set(names)) != len(names):
        raise ExchangeError(f"a name comes twice among {', '.join(names)}")
    if there := [n for n in names if (folder / n).exists()]:
        raise ExchangeError(
            f"{folder / there[0]} is there already and is left as it is; remove it to give "
            f"{there[0]!r} a new key, or leave {there[0]!r} out"
        )
    both = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    extensions = {
        x509.BasicConstraints(ca=False, path_length=None): True,
        x509.SubjectAlternativeName([_host(host) for host in hosts]): False,
        x509.ExtendedKeyUsage(both): False,
    }
    own = CertificateFiles(folder / "ca.pem", folder / "ca.pem", folder / "ca.key")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if own.certificate.exists() or own.key.exists():
            authority = _read_pair(own)
        else:
            is_authority = x509.BasicConstraints(ca=True, path_length=0)
            authority = _write_pair(own, AUTHORITY, None, AUTHORITY_DAYS, {is_authority: True})
        for name in names:
            (folder / name).mkdir(mode=0o700)
            files = certificate_files(folder, name)
            _write_pair(files, name, authority, days, extensions)
            new_file(files.ca, authority[0].public_bytes(PEM), mode=0o644)
    except OSError as error:
        raise ExchangeError(f"{error.filename or folder}: {error.strerror}") from error
    return tuple(folder / name for name in names)


def check_certificate(files: CertificateFiles, name: str) -> None:
    """Raise ExchangeError for what TLS would refuse without a reason, or wait for without an
    end: a file that is missing or no PEM, a wrong key, name, authority or time."""
    ca = _read_certificate(files.ca)
    certificate, _ = _read_pair(files)
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if (theirs := str(names[0].value) if names else "") != name:
        raise ExchangeError(
            f"{files.certificate} is for {theirs!r}, and this node is {name!r}; potluck "
            f"certificates makes one for {name!r}"
        )
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise ExchangeError(f"{files.certificate} was not signed by {files.ca}") from error
    now = datetime.datetime.now(datetime.UTC)
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not start <= now <= end:
        raise ExchangeError(
            f"{files.certificate} holds from {start:%Y-%m-%d} to {end:%Y-%m-%d}, and the clock "
            f"here says {now:%Y-%m-%d %H:%M}; set the clock, or make a new certificate"
        )


def _write_pair(
    files: CertificateFiles,
    name: str,
    authority: _Pair | None,
    days: int,
    extensions: Mapping[x509.ExtensionType, bool],
) -> _Pair:
    """Make a key and its certificate, signed by the ``authority`` or by itself."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signs = (authority[0].subject, authority[1]) if authority else (subject, key)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - BEFORE)
    builder = builder.not_valid_after(now + datetime.timedelta(days=days))
    for extension, is_critical in extensions.items():
        builder = builder.add_extension(extension, is_critical)
    made = builder.sign(signs, hashes.SHA256())
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    new_file(files.key, key.private_bytes(PEM, *form), mode=0o600)
    new_file(files.certificate, made.public_bytes(PEM), mode=0o644)
    return made, key


def _host(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    if not HOST.fullmatch(host):
        raise ExchangeError(f"{host!r} is no host; expected a DNS name or an address, no port")
    return x509.DNSName(host)


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(read_file(path, "certificate", MAKES_IT))
    except ValueError as error:
        raise ExchangeError(f"{path} is no certificate in PEM") from error


def _read_pair(files: CertificateFiles) -> _Pair:
    data = read_file(files.key, "key", MAKES_IT, is_secret=True)
    holds = _read_certificate(files.certificate)
    try:
        secret = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError) as error:
        raise ExchangeError(f"{files.key} is no private key in PEM without a password") from error
    if not isinstance(secret, ec.EllipticCurvePrivateKey) or (
        holds.public_key() != secret.public_key()
    ):
        raise ExchangeError(f"{files.key} is not the key of {files.certificate}")
    return holds, secret


def access_control(names: Sequence[str], run: str) -> dict[str, object]:
    """Build Zenoh's access rules for ``run``, or ``*`` for all: a node, known by the name in its
    certificate, may publish under that name only, a relay under any, an unlisted one under none.
    The signature says which node wrote what a relay passes on."""
    everything = [f"{run}/**"]
    own = {n: [*(f"{run}/{kind}/{n}" for kind in ALONE), f"{run}/q/{n}/**"] for n in names}
    speakers = own | dict.fromkeys(RELAYS, everything)
    rules = [(f"speak-{n}", "ingress", SPEAKING, keys) for n, keys in speakers.items()]
    rules.append(("ask", "ingress", ASKING, everything))
    rules.append(("out", "egress", SPEAKING + ASKING, everything))
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": [
            {"id": id, "permission": "allow", "flows": [flow], "messages": kinds, "key_exprs": keys}
            for id, flow, kinds, keys in rules
        ],
        "subjects": [{"id": n, "cert_common_names": [n]} for n in speakers],
        "policies": [{"rules": [f"speak-{n}", "ask", "out"], "subjects": [n]} for n in speakers],
    }
