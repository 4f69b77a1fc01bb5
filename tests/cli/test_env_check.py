"""``potluck env check``: the grade of a class, from the command line."""

CLASSES = """
import time
class taxi:  # in lower case: between colons, that is a picture in some terminals
    def reset(self, seed): return str(seed)
    def step(self, text): return f"{text} {time.time()}", 0.0, False
class steady:
    seeded = False
    actions = ["a"]
    def reset(self, start=0): self.said = start
    def step(self, text):
        self.said += len(text)
        return str(self.said), 1.0, False
"""


def test_the_grade_is_told_and_ends_with_1_where_it_is_own(potluck_says, desk):
    (desk / "own.py").write_text(CLASSES)
    code, out, err = potluck_says("env", "check", "own.py:taxi")
    assert (code, err) == (1, "")
    grade, why = out.splitlines()
    assert grade.startswith("own.py:taxi (game): grade 'own': it does not repeat")
    assert why.startswith("  again a second later, without a network: to turn 1, '1', it said '1 ")


def test_rows_and_actions_are_tried_and_a_doubt_is_no_failure(potluck_says, desk):
    (desk / "own.py").write_text(CLASSES)
    (desk / "rows.jsonl").write_text('{"start": 1}\n{"start": 5}\n')
    words = ("env", "check", "own.py:steady", "--rows", "rows.jsonl")
    code, out, err = potluck_says(*words)
    assert (code, out.splitlines()[0]) == (
        0,
        "own.py:steady (game): grade 'replay': others' episodes are played again here, and learned "
        "from",
    )
    assert "  other rows make other episodes" in out
    assert "--action" in err
    assert potluck_says(*words, "--action", "a", "--action", "bb")[2] == ""


def test_what_cannot_be_played_is_one_line_and_ends_with_2(potluck_says, desk):
    (desk / "own.py").write_text(CLASSES)
    for words in (("--rows", "no.jsonl"), ("--environment",)):
        code, out, err = potluck_says("env", "check", "own.py:steady", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
    assert potluck_says("env", "check", "no.py:steady")[0] == 2
