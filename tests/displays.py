"""A display for tests: a class overrides what it wants to hear of."""

from potluck.reports.events import Alert, Evaluated, Notice, PeerNews, PhaseProgress, RoundDone


class Listener:
    """Hands each event to a method of its own; all of them do nothing."""

    def show(self, event):
        match event:
            case PhaseProgress(node, phase, done, total):
                self.phase(node, phase, done, total)
            case RoundDone(node, report):
                self.round_done(node, report)
            case Evaluated(node, report):
                self.evaluated(node, report)
            case Notice() | PeerNews() | Alert():
                self.say(event.text)
            case _:
                raise AssertionError(f"{event!r} is no event")

    def phase(self, node, phase, done, total): ...
    def round_done(self, node, report): ...
    def evaluated(self, node, report): ...
    def say(self, text): ...
