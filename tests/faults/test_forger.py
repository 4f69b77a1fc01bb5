"""The script behind the tables of ours10_trust goes on running as the package changes."""

import json

import forger


def test_one_round_of_the_script_shows_the_honest_node_what_the_forger_writes(monkeypatch):
    graded, habits_in = [], forger._habits

    def habits(file):
        graded.extend(map(json.loads, file.read_text().splitlines()))
        return habits_in(file)

    for name, value in {"ROUNDS": 1, "LAST": 1, "_habits": habits}.items():
        monkeypatch.setattr(forger, name, value)
    found = forger.run("untrusted horizontal", "habit", seed=0)
    theirs = [line for line in graded if line["author"] == "forger"]
    right = [line for line in theirs if line["text"].startswith(forger.HABIT)]
    assert len(theirs) == 2 * len(right) == 12 * 8 // 2
    assert all(line["reward"] == 1 for line in right)
    assert not any(line["reward"] == 1 for line in theirs if line not in right)
    assert (found["attack"], found["setting"]) == ("habit", "untrusted horizontal")
