"""Who this node is to the others: key, roster, certificates; and its clock."""

import datetime
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509

from potluck.doctor.finding import Finding
from potluck.exchange import ExchangeError, Key
from potluck.exchange.certificates import certificate_files, check_certificate
from potluck.exchange.identity import public_text, read_roster, roster_line

SOON = datetime.timedelta(days=14)
SKEW_WARN_S = 60.0
MADE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
"""This program is not older, so no clock may say less."""


def key(path: Path, name: str, roster: Path | None) -> Finding:
    """Whether the secret is there, the owner's alone, and the one that the roster knows."""
    if not path.exists():
        if roster:
            return Finding(
                "key",
                "FAIL",
                f"there is no {path}, and a roster names keys: potluck keys {name} makes one, "
                f"[swarm] key names it, and its line goes into {roster}",
            )
        return Finding("key", "ok", f"none at {path} yet; joining makes one")
    try:
        found = Key.load(path)
        known = read_roster(roster).get(name) if roster else found.public
    except ExchangeError as error:
        return Finding("key", "FAIL", str(error))
    line = roster_line(name, found)
    if known is None:
        return Finding("key", "FAIL", f"{roster} has no line for {name!r}; add: {line}")
    if known != found.public:
        return Finding(
            "key",
            "FAIL",
            f"{roster} has another key for {name!r} than {path}; change its line to: {line}",
        )
    agreed = ", as in the roster" if roster else ""
    return Finding("key", "ok", f"{path}, which only its owner can read{agreed}")


def roster(path: Path | None, members: Sequence[str]) -> Finding:
    if path is None:
        return Finding("roster", "warn", "none: a name's first key is believed; fine among friends")
    try:
        found = read_roster(path)
    except ExchangeError as error:
        return Finding("roster", "FAIL", str(error))
    if absent := [name for name in members if name not in found]:
        return Finding(
            "roster",
            "FAIL",
            f"{path} has no key for {', '.join(absent)}; ask for what potluck keys prints",
        )
    return Finding("roster", "ok", f"{path}: {len(found)} names")


def peer_key(name: str, public: bytes, known: bytes) -> Finding | None:
    """A finding only where ``name`` speaks with another key than the roster's, ``known``."""
    if public == known:
        return None
    return Finding(
        "peer",
        "FAIL",
        f"{name!r} signs with {public_text(public)}, but the roster has {public_text(known)}; ask "
        f"it for the line of `potluck keys {name}`",
    )


def certificates(folder: Path | None, name: str, now: datetime.datetime) -> Finding:
    if folder is None:
        return Finding(
            "certificates",
            "warn",
            "no [swarm.tls]: anybody may connect; fine in a network of yours",
        )
    files = certificate_files(folder, name)
    try:
        check_certificate(files, name)
    except ExchangeError as error:
        return Finding("certificates", "FAIL", str(error))
    end = x509.load_pem_x509_certificate(files.certificate.read_bytes()).not_valid_after_utc
    if end - now < SOON:
        return Finding(
            "certificates",
            "warn",
            f"{files.certificate} ends on {end:%Y-%m-%d}; make new ones in time: remove the folder "
            f"{name} where ca.key is, and call potluck certificates",
        )
    return Finding("certificates", "ok", f"{files.certificate} holds to {end:%Y-%m-%d}")


def clock(now: datetime.datetime, recipe_changed: datetime.datetime | None) -> Finding:
    """Training needs no clock; certificates and logs do."""
    shown = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if now < MADE:
        return Finding("clock", "FAIL", f"{shown}, before this program was made; set it (NTP)")
    if recipe_changed and recipe_changed - now > datetime.timedelta(seconds=SKEW_WARN_S):
        return Finding(
            "clock",
            "warn",
            f"{shown}, but the recipe is from {recipe_changed:%Y-%m-%d %H:%M:%S}; set it (NTP)",
        )
    return Finding("clock", "ok", shown)


def skew(name: str, difference_s: float) -> Finding:
    """Args:
    difference_s: what the clock of ``name`` shows minus this one's, as its word arrived.
    """
    text = f"{name} is there; its clock is {difference_s:+.1f} s from this one's"
    if abs(difference_s) > SKEW_WARN_S:
        return Finding("peer", "warn", f"{text}; set the one that is wrong (NTP)")
    return Finding("peer", "ok", text)
