"""The choice of a node's next round, where nodes keep together and others may be ahead."""

from collections.abc import Mapping
from statistics import median

from potluck.node.pace.together import RoundBound
from potluck.node.participant import Participant
from potluck.reports.events import Alert, Display, Notice

ALONE_ROUNDS = 10
ALONE = (
    f"for {ALONE_ROUNDS} rounds no other node's completions were used: this node trains alone. To "
    f"wait for the others, press Ctrl-C, and start it with --resume when they are back"
)
"""Alert after ALONE_ROUNDS such rounds in a row."""


class Course:
    """Choice of a node's rounds; tells when it skips some, and when it believes no others."""

    def __init__(self, node: Participant, rounds: int, display: Display) -> None:
        self._node, self._display, self._is_told = node, display, False
        self._own_s, self._whole_s, self.alone = list[float](), list[float](), 0
        for line in node.record.rows("metrics"):
            alone = len(line.get("sources", ())) == 1
            self.add_round(line["round"], line.get("seconds", {}), alone=alone)
            self.alone = 0
        self._bound = RoundBound(rounds - 1)
        for line in node.record.rows("in_step")[-1:]:
            self._bound = RoundBound(rounds - 1, line["round"], line["time_s"])

    def add_round(self, round: int, seconds: Mapping[str, float], *, alone: bool = False) -> float:
        """Note the seconds of each phase of a round, in which the node may have been alone; return
        by how many it is then shorter than the median of the last ones with others."""
        self._own_s.append(seconds.get("write", 0.0) + seconds.get("learn", 0.0))
        self.alone, whole_s = self.alone + 1 if alone else 0, sum(seconds.values())
        if self.alone == ALONE_ROUNDS:
            self._display.show(Alert(self._node.name, "alone", round, ALONE))
        self._whole_s += [] if alone else [whole_s]
        return median(self._whole_s[-10:]) - whole_s if alone and self._whole_s else 0.0

    def next_round(self, done: int, now_s: float) -> int:
        """Choose the round to do after ``done`` rounds; ``now_s``: seconds since 1970."""
        node, bound = self._node, self._bound.counted_until(now_s)
        if bound != self._bound:  # the clock was set back: no resume counts from before, either
            self._count_from(bound.round, now_s)
        furthest = bound.furthest(now_s, self._own_s)
        round, others = node.next_round(done, furthest)
        if round > done:
            what = f"the others are at {others + 1}, so {round - done} rounds are skipped"
            self._display.show(Notice(f"{node.name}, round {done + 1}: {what}"))
        is_refused = round == done and others > max(furthest, done + node.pace.max_staleness)
        if is_refused and not self._is_told:
            why = f"the run ends with round {bound.last + 1}"
            if bound.in_step_s is not None and furthest < bound.last:
                since = f"in the {now_s - bound.in_step_s:.0f} s since round {bound.round + 1}"
                why = f"{since} at most {furthest - bound.round} rounds can have passed"
            what = f"the others claim round {others + 1}; {why}: going on with {done + 1}"
            self._display.show(Notice(f"{node.name}: {what}"))
        self._is_told = is_refused
        if node.is_in_step(round, others):
            self._count_from(round, now_s)
        elif bound.in_step_s is None:  # a partner that is mute at first gets no more than the time
            self._bound = RoundBound(bound.last, round, now_s)
        return round

    def _count_from(self, round: int, now_s: float) -> None:
        """Bound the rounds of others from ``round`` at this time on, after a restart too."""
        self._bound = RoundBound(self._bound.last, round, now_s)
        self._node.record.add("in_step", [{"round": round, "time_s": now_s}])
