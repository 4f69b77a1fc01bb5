"""Rounds as columns: which are kept of too many, and what a cell of the matrix means."""

from potluck.reports.status import AuthorStatus
from potluck.show.web import rounds as rounds_module
from potluck.show.web.rounds import NodeRounds


def test_an_older_round_goes_before_a_newer_one_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(rounds_module, "MOST_ROWS", 200)
    rounds = NodeRounds()
    for at in range(201):
        rounds.add(at, at, {}, {})
    columns = rounds.since(199).columns
    assert len(columns["round"]) < 200
    assert columns["round"][-100:] == list(range(101, 201))


def test_means_are_over_an_authors_last_rounds_and_tell_how_old_they_are():
    rounds = NodeRounds()
    for at in range(29):
        came = {"south": AuthorStatus(1, float(at))} if at < 27 else {}
        rounds.add(1, at, {}, came)
    cell = rounds.matrix()["south"]
    assert cell["reward_mean"] == sum(range(17, 27)) / 10
    assert cell["staleness"] == 2
