"""docs/results.md: does sharing pay, in distribution and out of it."""

from collections import Counter
from collections.abc import Iterable, Sequence

from potluck.reproduce.judge.runs import Runs
from potluck.reproduce.judge.sharing import (
    SAME,
    SHARED,
    Gain,
    are_twins,
    controls_of,
    gains_of,
)
from potluck.reproduce.judge.statistics import Measure, When, interval_of
from potluck.reproduce.page.finished import Finished
from potluck.reproduce.page.markdown import (
    NOTHING,
    accuracy_within,
    cell,
    counted,
    gain_within,
    listed,
    table,
)
from potluck.reproduce.page.words import pair_title

COLUMNS: tuple[tuple[Measure, When, str], ...] = (
    ("greedy", "end", "greedy, end"),
    ("greedy", "early", "greedy, early"),
    ("sampled", "end", "sampled, end"),
    ("sampled", "early", "sampled, early"),
)


SAME_GENERATION = "alone with the same generation"


def shared_pairs(there: Finished) -> list[str]:
    """The pairs that were run together with F-TIS, FAMILY.PAIR in the order of the scale."""
    ran = {(cell.family, cell.models) for cell in there.results.values() if cell.setting == SHARED}
    return [
        f"{name}.{pair}"
        for name, family in there.suite.scales[there.scale].family.items()
        for pair, models in family.pair.items()
        if (name, models) in ran
    ]


def does_it_pay(there: Finished) -> str:
    """A sentence for each pair, and a table against each control."""
    gains = {
        pair: gains_of(there.suite, there.scale, pair, there.results)
        for pair in shared_pairs(there)
        if not are_twins(there.suite, there.scale, pair)
    }
    every = [gain for of_pair in gains.values() for gain in of_pair]
    sentences = [f"- **{title_of(there, pair)}.** {_sentence(gains[pair])}" for pair in gains]
    parts = [
        f"*Pays*: the interval of F-TIS minus the control lies above 0. *Costs*: below 0. *No "
        f"difference*: within +-{SAME}. *Too wide*: none of these. Twins are left out, they stand "
        f"below.",
        _summary(every),
        "Alone with the same generation (half, quarter) is the control that writes as much. It "
        "does not match what is learned from: with F-TIS a model learns from all problems of a "
        "round, the control from its half or quarter of them, with a learning rate that was tuned "
        "for all; how far its seeds lie apart stands below.",
        "At the end, pair by pair:",
        "\n".join(sentences),
    ]
    for is_full, title in ((True, "alone"), (False, f"{SAME_GENERATION} (half or quarter)")):
        rows = [
            [title_of(there, pair), f"`{model}`", *_row(gains[pair], model, is_full)]
            for pair in gains
            for model in there.suite.pair(there.scale, pair)
        ]
        head = ["pair", "model", *(title for _, _, title in COLUMNS)]
        parts += [f"F-TIS minus {title}:", table(head, rows)]
    return "\n\n".join(parts)


def title_of(there: Finished, pair: str) -> str:
    return cell(pair_title(there.suite, there.scale, pair))


def _row(gains: Sequence[Gain], model: str, is_full: bool) -> list[str]:
    found = {
        (gain.measure, gain.when): gain
        for gain in gains
        if gain.model == model and (gain.than == "alone") == is_full
    }
    shown = [found.get((measure, when)) for measure, when, _ in COLUMNS]
    return [f"{gain_within(g.difference)} {cell(g.word)}" if g else NOTHING for g in shown]


def _summary(gains: Sequence[Gain]) -> str:
    """How often sharing pays at the end, over all pairs and models."""
    lines = []
    for is_full, name in ((False, f"{SAME_GENERATION} (half, quarter)"), (True, "alone")):
        for measure, how in (("greedy", "greedy accuracy"), ("sampled", "sampled reward")):
            words = Counter(
                gain.word
                for gain in gains
                if (gain.than == "alone") == is_full
                and (gain.measure, gain.when) == (measure, "end")
            )
            if words:
                said = listed([_said(word, str(words[word])) for word in _in_order(words)])
                lines.append(
                    f"- Against {name}, by {how}, of {words.total()} models in their pairs: {said}."
                )
    return "\n".join(lines)


def by_chance(there: Finished) -> str:
    """Twins: F-TIS minus alone, which chance makes, and minus half, which more data makes."""
    rows, tried, off = [], 0, 0
    for pair in shared_pairs(there):
        if are_twins(there.suite, there.scale, pair):
            gains = gains_of(there.suite, there.scale, pair, there.results)
            one = [gain for gain in gains if gain.model == gains[0].model]
            for than in dict.fromkeys(gain.than for gain in one):
                found = [gain for gain in one if gain.than == than]
                rows.append(
                    [title_of(there, pair), than, *(gain_within(g.difference) for g in found)]
                )
            known = [g.difference for g in one if g.than == "alone" and g.difference]
            tried += len(known)
            off += sum(not d.low <= 0 <= d.high for d in known)
    if not rows:
        return "No twins were run."
    head = ["twins", "F-TIS minus", *(title for _, _, title in COLUMNS), "out of distribution"]
    return (
        "Twins are one model under two names. They learn from the same answers with the same "
        "weights and stay equal to the bit (one of them is shown), so with F-TIS they are alone "
        "with other dice: what F-TIS minus alone shows here is noise, and a difference elsewhere "
        "on this page that is no larger may be noise, too. 0 lies outside of "
        f"{off} of {counted(tried, 'interval')}; by chance it does so for one in 20, and those of "
        "one model go together. F-TIS minus half shows what twice the data does, all of it the "
        "model's own.\n\n" + table(head, rows)
    )


def _sentence(gains: Sequence[Gain]) -> str:
    """Of one pair at the end."""
    parts = []
    for than in dict.fromkeys(gain.than for gain in gains):
        by = {measure: _who(gains, than, measure) for measure in ("greedy", "sampled")}
        if by["greedy"] == by["sampled"]:
            parts.append(
                f"Against {than}, it {by['greedy']}, by greedy accuracy and by sampled reward."
            )
        else:
            said = f"it {by['greedy']} by greedy accuracy; it {by['sampled']} by sampled reward"
            parts.append(f"Against {than}, {said}.")
    return " ".join(parts)


def _who(gains: Sequence[Gain], than: str, measure: Measure) -> str:
    models: dict[str, list[str]] = {}
    for g in gains:
        if (g.than, g.measure, g.when) == (than, measure, "end"):
            models.setdefault(g.word, []).append(f"`{g.model}`")
    return listed([_said(word, listed(models[word])) for word in _in_order(models)])


SAID = {
    "pays": "pays for {}",
    "no difference": "makes no difference for {}",
    "costs": "costs {}",
    "too wide": "cannot be told for {}",
}


def _in_order(words: Iterable[str]) -> list[str]:
    order = list(SAID)
    return sorted(words, key=lambda word: (order.index(word) if word in SAID else len(SAID), word))


def _said(word: str, whom: str) -> str:
    return SAID.get(word, f"is open ({cell(word)}) for {{}}").format(whom)


def out_of_distribution(there: Finished) -> str:
    """Like the paper's Table 2: accuracies, and what F-TIS gains on alone."""
    rows = []
    for pair in shared_pairs(there):
        if are_twins(there.suite, there.scale, pair):
            continue
        runs = Runs(there.suite, there.scale, pair, there.results)
        controls = controls_of(there.suite, runs.models)
        gains = {
            g.model: g
            for g in gains_of(there.suite, there.scale, pair, there.results)
            if (g.measure, g.than) == ("out-of-distribution", "alone")
        }
        for model in runs.models:
            reached = {
                s: accuracy_within(
                    interval_of(list(runs.values(model, s, "out-of-distribution", "end").values()))
                )
                for s in (*controls, SHARED)
            }
            fewer = [reached[s] for s in controls if s != "alone"] or [NOTHING]
            change = f"{gain_within(gains[model].difference)} {cell(gains[model].word)}"
            row = [title_of(there, pair), f"`{model}`", reached["alone"], *fewer]
            rows.append([*row, reached[SHARED], change])
    head = ["pair", "model", "alone", "half or quarter", "F-TIS together", "F-TIS minus alone"]
    return (
        "Greedy accuracy on longer or harder problems than those of the training, at the end; the "
        "base models may have seen such ones before (see the words). Twins are left out. "
        "*Floor* (alone below .1) and *ceiling* (above .8): no room to move, no verdict.\n\n"
        + table(head, rows)
    )
