"""Consent to what a recipe sends: a variable of the environment goes to the host that its user has
named, and to no other (docs/trust.md).

The run's folder remembers it, as a file whose name only a holder of the value can find: a folder
that comes from somebody else consents to nothing.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from potluck.config import ConfigError, RunConfig, as_tree
from potluck.files import LOCAL_SWARM, is_loopback, printable
from potluck.rollout.options import ServedOptions
from potluck.show.trackers.libraries import wandb_address

HASHES = 200_000
"""Hashes that a guess at a secret costs."""
BUCKET = re.compile("(s3|gs|gcs|az|abfs)://([^/]*)")
"""Address where a node writes with its user's account of that kind."""


class Secret(NamedTuple):
    """A variable of the environment, and where a node sends its value."""

    node: str
    variable: str
    url: str

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def pair(self) -> str:
        return f"{self.variable}={self.host}"

    def __str__(self) -> str:
        option = f"--allow-key {shlex.quote(self.pair)}"
        return f"{self.node!r} sends the variable {self.variable} to {self.host} ({option})"

    def mark(self, folder: Path) -> Path:
        """Name the file that stands for consent: slowly, so that no value is guessed from it."""
        value = os.fsencode(os.environ.get(self.variable, ""))
        proof = hashlib.pbkdf2_hmac("sha256", value, self.pair.encode(), HASHES).hex()
        return folder / LOCAL_SWARM / f"{proof}.allowed"


def secrets_of(config: RunConfig, names: Collection[str]) -> list[Secret]:
    return [Secret(name, *pair) for name in names for pair in config.node[name].engine.sends]


def require_consent(
    config: RunConfig, names: Collection[str], folder: Path, keys: Collection[str], trust_code: bool
) -> None:
    """Raise ConfigError if one of these nodes sends a secret in the clear, or one that neither
    ``keys`` nor the run in ``folder`` allows; else note there that it is allowed."""
    secrets = [s for s in secrets_of(config, names) if os.environ.get(s.variable)]
    for secret in secrets:
        url = urlsplit(secret.url)
        if url.scheme != "https" and not is_loopback(url.hostname or ""):
            raise ConfigError(
                f"{secret.node!r} sends the variable {secret.variable} to {secret.host} without "
                f"encryption; use https://, or send no key: drop api_key_variable, or unset it"
            )
    marks = {s: s.mark(folder) for s in secrets}
    allowed = {s for s in secrets if trust_code or s.pair in keys or marks[s].exists()}
    if new := "; ".join(str(s) for s in secrets if s not in allowed):
        raise ConfigError(
            f"the recipe sends secrets: {new}. If that is the host you mean, allow it with the "
            f"option in brackets (from Python: allow_keys=['NAME=HOST'])"
        )
    for mark in marks.values():
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def require_consent_to_buckets(config: RunConfig, keys: Collection[str], trust_code: bool) -> None:
    """Raise ConfigError if a node that joins writes to a bucket that ``keys`` do not name. It is
    not remembered: no value here would prove whose consent a file of the run's folder is."""
    for pair, note in _buckets(config).items():
        if not (trust_code or pair in keys):
            raise ConfigError(f"the recipe {note}. If you mean that bucket, add the option")


def _buckets(config: RunConfig) -> dict[str, str]:
    found = filter(None, map(BUCKET.match, config.swarm.connect))
    pairs = {f"{one[1]}={one[2]}": one for one in found}
    note = "writes to the bucket {0[2]} with your {0[1]} account (--allow-key {1})"
    return {pair: note.format(one, pair) for pair, one in pairs.items()}


def notes_on_reach(config: RunConfig) -> list[str]:
    """Write a line on each secret, each server and each file here that the recipe names."""
    urls = {
        n: e.url for n, node in config.node.items() if isinstance(e := node.engine, ServedOptions)
    }
    servers = [f"{name!r} writes through {url}: not asked yet" for name, url in urls.items()]
    files = [f"uses {file} ({key})" for key, file in _files(as_tree(config), "")]
    files += [f"leaves files in {url}" for url in config.swarm.connect if url.startswith("file:")]
    if "wandb" in config.log.to and config.log.wandb_mode == "online":
        servers.append(f"sends numbers and the recipe to W&B at {wandb_address()}: not asked yet")
    secrets, buckets = map(str, secrets_of(config, config.node)), _buckets(config).values()
    return [printable(line, limit=1000) for line in (*secrets, *buckets, *servers, *files)]


def _files(tree: Any, at: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items() if isinstance(tree, dict) else ():
        yield from _files(value, f"{at}.{key}".lstrip("."))
    if isinstance(tree, str):
        place = os.path.abspath(os.path.expanduser(tree))
        if os.path.isfile(place) or (os.sep in tree and os.path.exists(place)):
            yield at, place
