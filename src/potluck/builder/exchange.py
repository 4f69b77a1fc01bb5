"""The terms that a recipe's nodes agree on, and a node's exchange with the others."""

import hashlib
import json
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import cache
from math import ceil
from pathlib import Path

import msgspec

from potluck.config import LOCAL_SWARM, ConfigError, NodeConfig, RunConfig, as_tree
from potluck.exchange import (
    Agreement,
    Exchange,
    ExchangeError,
    InStep,
    Limits,
    MailboxRule,
    Membership,
    Newest,
    Provenance,
    transport,
)
from potluck.exchange.keys import keys
from potluck.exchange.protocol.mailbox import Partners
from potluck.exchange.transport import Digest, Notify
from potluck.exchange.wire import message
from potluck.model import Reader
from potluck.model.loading import load_tokenizer
from potluck.model.prompt import prompt_ids
from potluck.node.storage.record import REMEMBERED, Record
from potluck.rollout.texts.base import BYTES_A_TOKEN
from potluck.schedule import ALL_UP_TO, PLANS, Agenda, cohort
from potluck.tasks import Task
from potluck.types import Problem

MOST_MESSAGE_BYTES = (1 << 24) - (1 << 12)
"""Largest message of a session (exchange/zenoh/session.py) without the session's own part."""


def make_agenda(config: RunConfig, task: Task) -> Agenda:
    return Agenda(
        ids=task.ids("train"),
        weights={name: node.weight for name, node in config.members.items()},
        plan=PLANS[config.plan],
        group_size=config.group_size,
        problems_per_round=config.problems_per_round,
        seed=config.seed,
        stranger_problems=config.swarm.stranger_problems if config.swarm.open else 0,
        only_write=frozenset(config.members) - config.learners.keys(),
    )


def agreements_of(
    config: RunConfig, task: Task, policies: Mapping[str, Reader | None]
) -> dict[str, Agreement]:
    """State the terms on which each node takes part; one that only writes has no policy."""
    agreed = _agreed_digest(config, task)
    question_digest, agreements = _by_problem(task, _question), dict[str, Agreement]()
    for name, policy in policies.items():
        model = policy.fingerprint() if policy else str(config.node[name].engine)
        tokenizer = policy.tokenizer_digest if policy else message.NO_TOKENIZER
        agreements[name] = Agreement(
            run=config.name,
            node=name,
            provenance=Provenance(_short(model), tokenizer, agreed, config.sampling.drawing),
            limits=_limits(config, policy),
            prompt_digest=_by_problem(task, _prompt_of(config.node[name])),
            question_digest=question_digest,
        )
    return agreements


def _agreed_digest(config: RunConfig, task: Task) -> bytes:
    """Hash all that decides which problems each node is asked, and how they are answered."""
    tree = as_tree(config)
    agreed = {
        "task": task.digest,
        "nodes": {name: config.node[name].weight for name in sorted(config.members)},
        **{key: tree[key] for key in ("seed", "plan", "problems_per_round", "group_size")},
        **{key: tree["sampling"][key] for key in ("max_new_tokens", "max_total_tokens")},
        # Without, as before there were any.
        **({"stop_texts": config.sampling.stop_texts} if config.sampling.stop_texts else {}),
        "stranger_problems": config.swarm.stranger_problems if config.swarm.open else 0,
        **({"pace": config.pace, "intake": config.taken} if config.pace == "free" else {}),
    }
    return _short(json.dumps(agreed, sort_keys=True))


def _short(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[: message.FINGERPRINT_BYTES]


def _limits(config: RunConfig, policy: Reader | None) -> Limits:
    """Bound what any one node may write in a round."""
    swarm = config.swarm
    problems = max(config.problems_per_round, swarm.stranger_problems if swarm.open else 0)
    completions = problems * config.group_size
    tokens = min(config.sampling.max_new_tokens, config.sampling.max_total_tokens)
    # 8 bytes a token, its text, the columns of each completion, and what stands once in a header.
    # An author sends as much as this, also where max_total_tokens is less.
    text_bytes = 0 if swarm.text == "never" else BYTES_A_TOKEN * config.sampling.max_new_tokens
    most = (1 << 16) + completions * (64 + 8 * tokens + text_bytes) + problems * 512
    return Limits(
        message_bytes=min(most, MOST_MESSAGE_BYTES),
        completions=completions,
        tokens=tokens,
        vocabulary=policy.vocabulary if policy else message.BEYOND,
        text_bytes=text_bytes,
    )


def _by_problem(task: Task, made: Callable[[Problem], bytes]) -> Digest:
    """Make the function of an id that digests what is ``made`` of its problem; of nothing: b""."""
    ids, lock = frozenset(task.ids("train")), threading.Lock()

    @cache
    def known(problem_id: str) -> bytes:
        data = made(task.problem(problem_id))
        return hashlib.sha256(data).digest()[: message.PROMPT_DIGEST_BYTES] if data else b""

    def of(problem_id: str) -> bytes | None:
        with lock:  # batches are read in threads, and no two may use one tokenizer at a time
            return known(problem_id) if problem_id in ids else None

    return of


def _prompt_of(node: NodeConfig) -> Callable[[Problem], bytes]:
    if not node.reads:
        return lambda problem: b""
    tokenizer = load_tokenizer(node.reads)  # that of the node is used meanwhile

    def made(problem: Problem) -> bytes:
        ids_P = prompt_ids(
            tokenizer,
            problem,
            variables=node.chat_template_kwargs,
            chat_template=node.chat_template,
        )
        return ids_P.astype("<i4").tobytes()

    return made


def _question(problem: Problem) -> bytes:
    """Write what is alike for all tokenizers."""
    tools = [problem.tools] if problem.tools else []  # without: as before there were any
    return json.dumps([problem.system, problem.question, *tools]).encode()


def open_exchange(
    config: RunConfig,
    name: str,
    agreement: Agreement,
    folder: Path,
    notify: Notify,
    progress: Callable[[str, str, int, int], None],
    *,
    watches_status: bool = False,
) -> AbstractContextManager[Exchange]:
    """Connect the node to the others; what the recipe leaves out (roster, addresses, key) comes
    from files that ``potluck run`` has prepared in the folder. Raise ExchangeError."""
    swarm, here = config.swarm, folder / LOCAL_SWARM
    members, roster = frozenset(config.members), swarm_roster(config, folder)
    # A name that was mistyped is not to become a new key.
    key = keys.Key.load(Path(swarm.key)) if swarm.key else keys.make_key(here / f"{name}.key")
    owners = [owner for owner, public in roster.items() if public == key.public]
    if owners and name not in owners:
        raise ExchangeError(
            f"{swarm.key or here} holds the key of {owners[0]!r}, not of {name!r}; name the file "
            f"of {name!r} with --set swarm.key=FILE"
        )
    if name in roster and roster[name] != key.public:
        raise ExchangeError(
            f"the roster has another key for {name!r} than {swarm.key or here}; put "
            f"`{keys.roster_line(name, key)}` into it, or name the right key in [swarm] key"
        )
    listen, connect = swarm.listen, swarm.connect
    if not (listen or connect):
        listen, connect = _prepared_addresses(here / "addresses.json", name)
    record = Record(folder / name, run=config.name, node=name)
    own = Membership(
        agreement=agreement,
        key=key,
        known_keys=keys.KnownKeys(roster, members, swarm.open, here / f"{name}.known.toml"),
        folder=folder / name,
        members=members,
        partners=partners_of(config, name),
        codec=swarm.codec,
        rule=rule_of(config, record.taken()),
        kept_rounds=swarm.kept_rounds,
        quarantine_s=swarm.quarantine_s,
        listen=listen,
        connect=connect,
        certificates=Path(swarm.tls.folder) if swarm.tls else None,
        # All that the recipe or the roster names may connect, strangers among them.
        may_connect=tuple(dict.fromkeys([*config.node, *roster])),
        already_received=record.batches(REMEMBERED),
        notify=notify,
        waiting=lambda: progress(name, "connect", 0, 1),
        watches_status=watches_status,
    )
    return transport(swarm.transport).open_exchange(own)


def rule_of(config: RunConfig, taken: Mapping[str, int]) -> MailboxRule:
    """Make a mailbox's rule; ``taken``: the newest round of each author that came before."""
    swarm = config.swarm
    if config.pace == "together":
        return InStep(swarm.max_staleness, swarm.kept_rounds)
    # as many as fill a round, and one to spare
    return Newest(swarm.max_staleness, taken, enough=ceil(config.taken) + 1)


def partners_of(config: RunConfig, name: str) -> Partners:
    """Make the function that chooses whom to fetch from. At its own pace a node needs few in a
    round: it takes nothing of most authors, and others have their turn in the next."""
    members, size, all_up_to = frozenset(config.members), config.swarm.cohort, ALL_UP_TO
    if config.pace == "free":
        size = all_up_to = min(size, max(2, ceil(2 * config.taken)))
    return lambda round, live: cohort(
        live, members=members, me=name, run=config.name, round=round, size=size, all_up_to=all_up_to
    )


def swarm_roster(config: RunConfig, folder: Path) -> dict[str, bytes]:
    """Read public keys by name, from the recipe's file or that of the nodes of this machine. Raise
    ConfigError for a member without a key in it, ExchangeError if it cannot be read."""
    place = Path(config.swarm.roster or folder / LOCAL_SWARM / "roster.toml")
    if not (config.swarm.roster or place.is_file()):
        return {}
    roster = keys.read_roster(place)
    if name := next((each for each in config.members if each not in roster), ""):
        raise ConfigError(
            f"[node.{name}] is a member, but {place} has no key for it; ask it for the line "
            f"that `potluck keys {name}` prints, or set stranger = true"
        )
    return roster


def trusts_of(
    config: RunConfig, folder: Path, name: str, here: Collection[str]
) -> Callable[[str], bool]:
    """Make the function that tells if ``name`` trusts an author; one person started ``here``."""
    match config.objective.trust:
        case "everybody":
            return lambda author: True
        case "nobody":
            return lambda author: author == name
    trusted = frozenset([*here, *swarm_roster(config, folder)])
    return lambda author: author in trusted


def _prepared_addresses(file: Path, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read this node's address and those before it: no two call each other (docs/swarm.md)."""
    try:
        addresses = msgspec.json.decode(file.read_bytes(), type=dict[str, str])
        own, before = addresses[name], list(addresses)[: list(addresses).index(name)]
    except (OSError, msgspec.MsgspecError, KeyError):
        raise ConfigError(
            f"{name!r} does not know where the others are: name them with --connect (or [swarm] "
            f"connect), and where it can be reached with --listen"
        ) from None
    return (own,), tuple(addresses[each] for each in before)
