"""The credentials of this node: key, roster, certificates; and its clock."""

import datetime
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509

from potluck.doctor.machine import Judged
from potluck.exchange import ExchangeError, Key
from potluck.exchange.keys.certificates import certificate_files, check_certificate
from potluck.exchange.keys.keys import public_text, read_roster, roster_line

SOON = datetime.timedelta(days=14)
SKEW_WARN_S = 60.0
MADE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
"""This program is not older, so no clock may say less."""


def key(path: Path, name: str, roster: Path | None) -> Judged:
    """Check that the secret is there, the owner's alone, and the one that the roster knows."""
    if not path.exists():
        if roster is None:
            return "ok", f"none at {path} yet; joining makes one"
        return "FAIL", (
            f"there is no {path}, and a roster names keys: potluck keys {name} makes one, "
            f"[swarm] key names it, and its line goes into {roster}"
        )
    try:
        found = Key.load(path)
        known = read_roster(roster).get(name) if roster else found.public
    except ExchangeError as error:
        return "FAIL", str(error)
    line = roster_line(name, found)
    if known is None:
        return "FAIL", f"{roster} has no line for {name!r}; add: {line}"
    if known != found.public:
        return (
            "FAIL",
            f"{roster} has another key for {name!r} than {path}; change its line to: {line}",
        )
    agreed = ", as in the roster" if roster else ""
    return "ok", f"{path}, which only its owner can read{agreed}"


def roster(path: Path | None, members: Sequence[str]) -> Judged:
    """Check that the roster can be read and has a key for each of ``members``."""
    if path is None:
        return "warn", "none: a name's first key is believed; fine among friends"
    try:
        found = read_roster(path)
    except ExchangeError as error:
        return "FAIL", str(error)
    if absent := ", ".join(name for name in members if name not in found):
        return "FAIL", f"{path} has no key for {absent}; ask for what potluck keys prints"
    return "ok", f"{path}: {len(found)} names"


def peer_key(name: str, public: bytes, known: bytes) -> Judged | None:
    """Find a failure if ``name`` speaks with another key than the roster's, ``known``."""
    if public == known:
        return None
    return "FAIL", (
        f"{name!r} signs with {public_text(public)}, but the roster has {public_text(known)}; ask "
        f"it for the line of `potluck keys {name}`"
    )


def certificates(folder: Path | None, name: str, now: datetime.datetime) -> Judged:
    """Check that the certificate is this node's, holds, and does not end soon."""
    if folder is None:
        return "warn", "no [swarm.tls]: any node may connect; fine in a network of yours"
    files = certificate_files(folder, name)
    try:
        check_certificate(files, name)
    except ExchangeError as error:
        return "FAIL", str(error)
    end = x509.load_pem_x509_certificate(files.certificate.read_bytes()).not_valid_after_utc
    if end - now < SOON:
        return "warn", (
            f"{files.certificate} ends on {end:%Y-%m-%d}; make new ones in time: remove the folder "
            f"{name} where ca.key is, and call potluck certificates"
        )
    return "ok", f"{files.certificate} holds to {end:%Y-%m-%d}"


def clock(now: datetime.datetime, recipe_changed: datetime.datetime | None) -> Judged:
    """Check the clock: training needs none, but certificates and logs do."""
    shown = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if now < MADE:
        return "FAIL", f"{shown}, before this program was made; set it (NTP)"
    if recipe_changed and (recipe_changed - now).total_seconds() > SKEW_WARN_S:
        changed = f"{recipe_changed:%Y-%m-%d %H:%M:%S}"
        return "warn", f"{shown}, but the recipe is from {changed}; set it (NTP)"
    return "ok", shown


def skew(name: str, difference_s: float) -> Judged:
    """Check the clock of ``name``: what it shows minus this one's, as its word arrived."""
    text = f"{name} is there; its clock is {difference_s:+.1f} s from this one's"
    if abs(difference_s) > SKEW_WARN_S:
        return "warn", f"{text}; set the one that is wrong (NTP)"
    return "ok", text
