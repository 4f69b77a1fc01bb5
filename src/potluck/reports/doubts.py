"""Doubts: what of a round a person should look at, and what to do about it."""

from collections.abc import Iterator

from potluck.reports.rounds import RoundReport

DOUBTFUL_LOG_RATIO = 0.5
"""Mean log-ratio, nats, from which an author's claims are doubted. However far two honest models
are, it is below 0 but for noise: text is likeliest to the model that wrote it."""
DOUBTFUL_CAPPED_SHARE = 0.5
"""Share of tokens with w > C from which they are doubted too."""
FEWEST_TOKENS = 50
"""Tokens of an author in a round below which a mean over them is noise."""
APART_GROWTH, APART_FLOOR = 20, 1e-6
"""Times the first ``server_apart``, or nats where that is less, that stand out. A server in float32
is 7e-9 to 9e-7 nats apart by rounding; with a part of its weights one round old, at a learning rate
of 1e-4, it was 4e-4. In bfloat16 rounding costs 1e-3 to 4e-3."""
DOUBT = (
    "its log-probabilities may be forged. [objective] method = 'lws' reads none, and trust = "
    "'nobody' none of others"
)


def doubts(report: RoundReport, me: str, *, reads_logp: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (node, field, line for the user) of what stands out, and say what to do about it.
    ``reads_logp`` tells if the run's method reads what authors claim."""
    if report.own_cut_share == 1:
        yield (
            me,
            "own_cut_share",
            f"{me}: every one of its completions ran out of tokens before it ended, so each "
            f"scores at most 0; raise [sampling] max_new_tokens (or max_total_tokens), or "
            f"see in completions.jsonl why it does not stop",
        )
    apart, first = report.server_apart, report.server_apart_first
    if apart and first is not None and apart >= APART_GROWTH * max(first, APART_FLOOR):
        yield (
            me,
            "server_apart",
            f"{me}: the log-probabilities of its server are {apart:.1e} nats a token from its own, "
            f"in the run's first writing {first:.1e}: the server may have old weights, all or in "
            f"part (docs/vllm.md, 'The checks')",
        )
    if reads_logp:
        yield from _doubtful_claims(report, me)


def _doubtful_claims(report: RoundReport, me: str) -> Iterator[tuple[str, str, str]]:
    """Yield where an author's log-probabilities stand out; of one that is not trusted none is read,
    so nothing is said."""
    for author, its in report.sources.items():
        ratio, capped = its.log_ratio_mean, its.capped_share
        if author == me or its.gradient_share is not None or its.tokens < FEWEST_TOKENS:
            continue
        found = {}
        if ratio is not None and ratio >= DOUBTFUL_LOG_RATIO:
            found["log_ratio_mean"] = f"{ratio:.1f} nats a token likelier to {me} than it claims"
        if capped is not None and capped >= DOUBTFUL_CAPPED_SHARE:
            found["capped_share"] = f"{capped:.0%} of tokens above the weight cap of {me}"
        for kind, what in found.items():
            yield author, kind, f"{author}: {what}; {DOUBT}"
