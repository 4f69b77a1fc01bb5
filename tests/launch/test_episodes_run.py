"""A run whose answers are episodes: two nodes play, replay each other's and learn from them."""

import pytest

import tiny
from launch.runs import lines
from potluck.launch.in_process import run
from potluck.replay.plan import make_plan
from potluck.replay.run import replay

GAME = """
class Count:
    def reset(self, *, seed):
        self.said = 0
        return f"{seed % 9}"

    def step(self, text):
        self.said += 1
        return f"a{self.said}", float(sum(map(ord, text)) % 7) / 7, "x" in text
"""


@pytest.fixture(scope="module")
def finished(tiny_models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("episodes")
    (folder / "count.py").write_text(GAME)
    task = {"name": "game", "game": f"{folder / 'count.py'}:Count", "max_turns": 3}
    sampling = {"max_new_tokens": 40, "max_total_tokens": 64}
    recipe = tiny.recipe(tiny_models, "plan=horizontal", task=task, sampling=sampling)
    run(recipe, folder / "run", trust_code=True)
    return folder / "run"


@pytest.mark.parametrize(("node", "other"), [("small", "large"), ("large", "small")])
def test_each_learns_from_the_others_episodes(finished, node, other):
    rounds = lines(finished, node)
    assert [each["unreadable"] for each in rounds] == [{}, {}]
    of_other = [each["sources"][other] for each in rounds]
    assert sum(each["rows_trained"] for each in of_other) > 0
    assert all(each["turns_mean"] > 1 for each in of_other)
    assert [each["replay_refused_share"] for each in of_other] == [0.0, 0.0]
    assert 0 < rounds[0]["own_cut_share"] < 1


def test_both_heard_and_paid_the_same(finished):
    small, large = (lines(finished, name, "completions") for name in ("small", "large"))
    assert small == large
    ends = {each["end"] for each in small}
    assert {"stop", "length"} <= ends <= {"stop", "length", "turns", "room"}
    for each in small:
        said = [turn["content"] for turn in each["turns"] if turn["role"] == "assistant"]
        heard = [turn["content"] for turn in each["turns"] if turn["role"] == "user"]
        acted = said[:-1] if each["end"] == "length" else said
        assert "\n".join(said) == each["text"]
        assert heard == [f"a{at}" for at, _ in enumerate(acted, 1)]
        paid = sum((sum(map(ord, text)) % 7) / 7 for text in acted)
        assert each["reward"] == pytest.approx(0.0 if each["end"] == "length" else paid)


def test_the_run_is_replayed_with_other_methods(finished, tmp_path):
    plan = make_plan(finished, methods="nois,tis", node="small", out=tmp_path / "out")
    rows = list(replay(plan, say=pytest.fail, trust_code=True))
    assert [row.method for row in rows] == ["nois"] * 2 + ["tis"] * 2
    assert all(-1 <= row.cosine <= 1 for row in rows)
