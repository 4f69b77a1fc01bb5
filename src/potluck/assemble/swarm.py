"""From a recipe to what its nodes agree on, and to a node's line to the others."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from potluck.config import HERE, ConfigError, RunConfig, as_tree
from potluck.exchange import Limits, Origin, Terms
from potluck.exchange.identity import IdentityError, Key, make_key, read_roster, roster_line
from potluck.exchange.wire import FINGERPRINT_BYTES, PROMPT_DIGEST_BYTES
from potluck.node import Record
from potluck.rollout import LanguageModel
from potluck.rollout.loading import fingerprint, load_tokenizer
from potluck.rollout.model import prompt_ids
from potluck.swarm import PLANS, Agenda, cohort
from potluck.tasks import Task

if TYPE_CHECKING:
    from potluck.exchange.zenoh import ZenohExchange

REMEMBERED = 2 * 64
"""Rounds of which a node that is started again knows what it has learned from: more than the
others keep."""
MOST_MESSAGE_BYTES = (1 << 24) - (1 << 12)
"""What a session takes in one piece (exchange/session.py), its own part of it left aside."""


def members_of(config: RunConfig) -> list[str]:
    """The nodes that the plan counts on."""
    return [name for name, node in config.node.items() if not node.stranger]


def make_agenda(config: RunConfig, task: Task) -> Agenda:
    return Agenda(
        ids=task.ids("train"),
        weights={name: config.node[name].weight for name in members_of(config)},
        plan=PLANS[config.plan],
        group_size=config.group_size,
        problems_per_round=config.problems_per_round,
        seed=config.seed,
        stranger_problems=config.swarm.stranger_problems if config.swarm.open else 0,
    )


def terms_of(
    config: RunConfig, task: Task, languages: Mapping[str, LanguageModel]
) -> dict[str, Terms]:
    """On which each node of this process takes part."""
    agreed = _agreed_digest(config, task)
    return {
        name: Terms(
            run=config.name,
            node=name,
            origin=Origin(
                model=_short(language.fingerprint()),
                tokenizer=_short(f"{fingerprint(language.tokenizer)} {sorted(language.stop_ids)}"),
                task=agreed,
                temperature=config.sampling.temperature,
                top_k=config.sampling.top_k,
                top_p=config.sampling.top_p,
            ),
            limits=_limits(config, language),
            prompt_digest=_Prompts(task, config.node[name].model).digest,
        )
        for name, language in languages.items()
    }


def _agreed_digest(config: RunConfig, task: Task) -> bytes:
    """Of all that decides which problems are asked of whom, and how they are answered."""
    tree = as_tree(config)
    agreed = {
        "task": task.digest,
        "nodes": {name: config.node[name].weight for name in sorted(members_of(config))},
        **{key: tree[key] for key in ("seed", "plan", "problems_per_round", "group_size")},
        **{key: tree["sampling"][key] for key in ("max_new_tokens", "max_total_tokens")},
        "stranger_problems": config.swarm.stranger_problems if config.swarm.open else 0,
    }
    return _short(json.dumps(agreed, sort_keys=True))


def _short(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:FINGERPRINT_BYTES]


def _limits(config: RunConfig, language: LanguageModel) -> Limits:
    """The most that any one node may write in a round."""
    swarm = config.swarm
    problems = max(config.problems_per_round, swarm.stranger_problems if swarm.open else 0)
    completions = problems * config.group_size
    tokens = min(config.sampling.max_new_tokens, config.sampling.max_total_tokens)
    # 8 bytes a token, the columns of each completion, and what stands once in a header.
    most = (1 << 16) + completions * (64 + 8 * tokens) + problems * 512
    return Limits(
        message_bytes=min(most, MOST_MESSAGE_BYTES),
        completions=completions,
        tokens=tokens,
        vocabulary=language.vocabulary,
    )


class _Prompts:
    """Digests of the prompts' ids. A tokenizer of its own: peers' batches are read in threads,
    and a tokenizer is not to be used in two at a time."""

    def __init__(self, task: Task, model: str) -> None:
        self._task, self._tokenizer = task, load_tokenizer(model)
        self._ids, self._lock = frozenset(task.ids("train")), threading.Lock()
        self._known: dict[str, bytes] = {}

    def digest(self, problem_id: str) -> bytes | None:
        if problem_id not in self._ids:
            return None
        with self._lock:
            if (known := self._known.get(problem_id)) is None:
                prompt_P = prompt_ids(self._tokenizer, self._task.problem(problem_id))
                whole = hashlib.sha256(prompt_P.astype("<i4").tobytes()).digest()
                known = self._known[problem_id] = whole[:PROMPT_DIGEST_BYTES]
        return known


@contextmanager
def open_exchange(
    config: RunConfig,
    name: str,
    terms: Terms,
    folder: Path,
    say: Callable[[str], None],
    progress: Callable[[str, str, int, int], None],
) -> Iterator["ZenohExchange"]:
    """The node's line to the others.

    What ``potluck run`` has prepared in the run's folder (a roster, addresses, keys) stands for
    what the recipe does not say.

    Raises:
        ExchangeError: it cannot be opened: an address in use, a key or certificate not readable.
    """
    # Loaded with its first use: whoever trains in one process needs no network.
    from potluck.exchange.session import Line, Tls, open_patiently
    from potluck.exchange.trust import Trust
    from potluck.exchange.zenoh import ZenohExchange

    swarm, here = config.swarm, folder / HERE
    members = members_of(config)
    roster = swarm_roster(config, folder)
    # A name that was mistyped is not to become a new key.
    key = Key.load(Path(swarm.key)) if swarm.key else make_key(here / f"{name}.key")
    if name in roster and roster[name] != key.public:
        raise IdentityError(
            f"the roster has another key for {name!r} than {swarm.key or here}; put "
            f"`{roster_line(name, key)}` into it, or name the right key in [swarm] key"
        )
    # Whoever the recipe or the roster names may connect, strangers among them.
    names = tuple(dict.fromkeys([*config.node, *roster]))
    tls = Tls(Path(swarm.tls.folder), name, names) if swarm.tls else None
    listen, connect = swarm.listen, swarm.connect
    if not (listen or connect):
        listen, connect = _prepared_addresses(here / "addresses.json", name)
    session = open_patiently(
        Line(listen, connect, tls), run=config.name, waiting=lambda: progress(name, "connect", 0, 1)
    )
    with (
        closing(session),
        closing(
            ZenohExchange(
                session,
                terms,
                key,
                Trust(roster, members, swarm.open, here / f"{name}.known.toml"),
                folder=folder / name,
                members=members,
                partners=lambda round, live: cohort(
                    live, members=members, me=name, run=config.name, round=round, size=swarm.cohort
                ),
                codec=swarm.codec,
                max_staleness=swarm.max_staleness,
                kept_rounds=swarm.kept_rounds,
                quarantine_s=swarm.quarantine_s,
                had=Record(folder / name, run=config.name, node=name).batches(REMEMBERED),
                say=say,
            )
        ) as exchange,
    ):
        yield exchange


def swarm_roster(config: RunConfig, folder: Path) -> dict[str, bytes]:
    """Names and public keys: of the file that the recipe names, or of the nodes of this machine.

    Raises:
        ConfigError: a member of the roster is no node of the recipe, so no plan counts on it.
        IdentityError: the file cannot be read.
    """
    place = Path(config.swarm.roster) if config.swarm.roster else folder / HERE / "roster.toml"
    if not (config.swarm.roster or place.is_file()):
        return {}
    roster = read_roster(place)
    for name in members_of(config):
        if name not in roster:
            raise ConfigError(
                f"[node.{name}] is a member, but {place} has no key for it; ask it for the line "
                f"that `potluck keys {name}` prints, or set stranger = true"
            )
    return roster


def _prepared_addresses(file: Path, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(where this node listens, where the others do), where ``potluck run`` has started them."""
    try:
        addresses = msgspec.json.decode(file.read_bytes(), type=dict[str, str])
        own = addresses.pop(name)
    except (OSError, msgspec.MsgspecError, KeyError):
        raise ConfigError(
            f"{name!r} does not know where the others are: name them with --connect (or [swarm] "
            f"connect), and where it can be reached with --listen"
        ) from None
    return (own,), tuple(addresses.values())
