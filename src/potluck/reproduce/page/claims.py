"""docs/results.md: all claims in one table, and what ran."""

from collections import Counter
from collections.abc import Iterable, Sequence

from potluck.reproduce.judge.verdict import Finding, Verdict, findings_of, verdict_of_claim
from potluck.reproduce.page.experiment import said
from potluck.reproduce.page.finished import Finished
from potluck.reproduce.page.markdown import NOTHING, cell, counted, listed, table
from potluck.reproduce.suite import Experiment

VERDICTS: tuple[Verdict, ...] = ("shown", "refuted", "inconclusive")
STALE_MARK = "†"
WIDE = "interval too wide"
"""The reason that needs no mention."""


def what_ran(there: Finished) -> str:
    """The first paragraph on a scale."""
    cells = there.results.values()
    begin = f"**Scale {there.scale}**: "
    if not cells:
        return (
            f"{begin}not run yet: {counted(len(there.planned), 'cell')}. "
            f"`potluck reproduce --all --scale {there.scale} --check` says what they take."
        )
    titles = {c.family: there.suite.scales[there.scale].family[c.family].title for c in cells}
    seeds = counted(len({c.seed for c in cells}), "seed")
    missing = f"; {counted(there.missing, 'cell')} not run yet" if there.missing else ""
    return (
        f"{begin}{counted(len(cells), 'run')} (cells), of {seeds}{missing}. "
        f"Tasks: {_all(titles.values())}. "
        f"They took {sum(c.cpu_s for c in cells) / 3600:.1f} core-hours, one thread each, on "
        f"{_all(c.machine for c in cells)} with torch "
        f"{_all(c.torch for c in cells)}. Rerun: "
        f"`potluck reproduce --all --scale {there.scale} --again`; without `--again`, finished "
        f"cells are kept."
    )


def _all(texts: Iterable[str]) -> str:
    return cell(listed(sorted(set(texts))))


def claims_table(there: Finished) -> str:
    """A row for each claim, and one sentence that counts them."""
    families = list(there.suite.scales[there.scale].family)
    rows, verdicts = [], Counter[Verdict]()
    for experiment in there.suite.experiments:
        if there.scale not in experiment.pairs:
            continue
        findings = findings_of(there.suite, experiment, there.scale, there.results)
        stale = any(name in there.stale for name in there.of(experiment))
        for claim in experiment.claims:
            tests = [f for f in findings if f.claim == claim]
            verdict = verdict_of_claim(tests)
            verdicts[verdict] += 1
            rows.append(
                [
                    _name(experiment) + (STALE_MARK if stale else ""),
                    said(claim),
                    f"**{verdict}**",
                    _tally(tests),
                    *(_in_family(family, tests) for family in families),
                ]
            )
    titles = [cell(there.suite.scales[there.scale].family[name].title) for name in families]
    head = ["figure", "claim", "verdict", "tests: shown / refuted / open", *titles]
    counts = [f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS]
    return (
        f"Of {counted(len(rows), 'claim')}, {listed(counts)}. The columns of the tasks have the "
        f"verdict that a claim about that task alone would get, with the m of its tests.\n\n"
        + table(head, rows)
    )


def _name(experiment: Experiment) -> str:
    figure = experiment.figure
    named = f"Figure {figure}" if figure.isdecimal() else figure
    short = experiment.name.partition("_")[0]
    return f"[{cell(named or short)}](../experiments/{experiment.name}/RESULTS.md)"


def _tally(tests: Sequence[Finding]) -> str:
    count = Counter(test.verdict for test in tests)
    return " / ".join(str(count[verdict]) for verdict in VERDICTS)


def _in_family(family: str, tests: Sequence[Finding]) -> str:
    """Its verdict and tally there, and why there is none if it is not for a wide interval."""
    there = [test for test in tests if test.pair.partition(".")[0] == family]
    if not there:
        return NOTHING
    reasons = sorted({t.reason for t in there if t.reason not in ("", WIDE)})
    why = f" ({cell(', '.join(reasons))})" if reasons else ""
    return f"{verdict_of_claim(there)} {_tally(there)}{why}"


def staleness(scales: Sequence[Finished]) -> str:
    """Which cells ran other code than today's. Names rooms and no digests, so that a second change
    in a room leaves the page as it is."""
    if not any(there.results for there in scales):
        return "No cell was run."
    if not any(there.stale for there in scales):
        return "All cells ran the code as it is."
    rows = []
    for there in scales:
        for experiment in there.suite.experiments:
            cells = there.of(experiment)
            stale = [there.stale[name] for name in cells if name in there.stale]
            if stale:
                rooms = sorted({room for changed in stale for room in changed})
                share = f"{len(stale)} of {len(cells)}"
                rows.append([_name(experiment), there.scale, share, ", ".join(rooms)])
    total = sum(len(there.stale) for there in scales)
    of = sum(len(there.results) for there in scales)
    return (
        f"{total} of {counted(of, 'cell')} ran code of which a room has changed since. Their "
        f"numbers count, and their experiments have a {STALE_MARK} in the table of claims; "
        f"`potluck reproduce --all --stale` runs them again.\n\n"
        + table(["figure", "scale", "stale cells", "rooms that have changed since"], rows)
    )
