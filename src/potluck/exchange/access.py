"""Zenoh's access control: each node speaks under its own name only.

A node is known by the name in its certificate, and may write to ``<run>/live/NAME``,
``<run>/ann/NAME`` and ``<run>/q/NAME/**``. This covers one hop: of what comes over a relay, the
signature of each message says who wrote it.
"""

from collections.abc import Sequence

RELAYS = ("relay", *(f"relay-{at}" for at in range(2, 9)))
"""Names in the certificates of routers: with TLS, no node may have one. Whoever has one may pass on
what any node said."""
SPEAKING = ["put", "delete", "reply", "declare_queryable", "liveliness_token"]
ASKING = ["declare_subscriber", "query", "liveliness_query", "declare_liveliness_subscriber"]


def access_control(names: Sequence[str], run: str) -> dict[str, object]:
    """Who may say what: each node under its own name, a relay for all, who is not listed nothing.

    Args:
        run: a run, or ``*`` for every run.
    """
    everything = [f"{run}/**"]
    own = {n: [f"{run}/live/{n}", f"{run}/ann/{n}", f"{run}/q/{n}/**"] for n in names}
    speakers = own | dict.fromkeys(RELAYS, everything)
    speaking = [_rule(f"speak-{n}", "ingress", SPEAKING, keys) for n, keys in speakers.items()]
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": [
            *speaking,
            _rule("ask", "ingress", ASKING, everything),
            _rule("out", "egress", SPEAKING + ASKING, everything),
        ],
        "subjects": [{"id": name, "cert_common_names": [name]} for name in speakers],
        "policies": [
            {"rules": [f"speak-{name}", "ask", "out"], "subjects": [name]} for name in speakers
        ],
    }


def _rule(id: str, flow: str, messages: list[str], keys: list[str]) -> dict[str, object]:
    return {
        "id": id, "permission": "allow", "flows": [flow], "messages": messages, "key_exprs": keys,
    }  # fmt: skip
