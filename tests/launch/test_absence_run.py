"""A member of the recipe that never comes: its part is written by the node that is here."""

import pytest

import tiny
from displays import Listener
from launch.runs import Crash, CrashesAfter, lines
from potluck.launch.in_process import join, run

SWARM = ("swarm.gather_s=0", "deadline_s=0.05", "swarm.listen=['tcp/127.0.0.1:0']")
PLANS = {
    "vertical": ("plan=vertical",),
    "free": ("plan=horizontal", "pace=free"),
    "untrusted": ("plan=horizontal", "objective.method=lws", "objective.trust=nobody"),
}


@pytest.mark.parametrize("plan", PLANS)
def test_the_part_of_a_member_that_never_came_is_written_and_after_a_crash_too(
    tmp_path, tiny_models, plan
):
    rounds = "rounds=5", "checkpoint_every=2", "evaluation.every=0", "problems_per_round=4"
    config = tiny.recipe(tiny_models, *rounds, *PLANS[plan], *SWARM)
    join(config, "small", tmp_path / "run", display=Listener())
    of_a_round = 4 * config.group_size
    seen = [(line["absent"], line["completions"]) for line in lines(tmp_path / "run", "small")]
    until = 2 if plan == "free" else 1
    assert seen == [([], of_a_round // 2)] * until + [(["large"], of_a_round)] * (5 - until)

    with pytest.raises(Crash):
        join(config, "small", tmp_path / "cut", display=CrashesAfter(3))
    join(config, "small", tmp_path / "cut", display=Listener(), resume=True)
    assert rewards(tmp_path / "cut") == rewards(tmp_path / "run")


def test_where_all_are_here_nobody_is_absent(tmp_path, tiny_models):
    config = tiny.recipe(tiny_models, "rounds=4", "evaluation.every=0")
    run(config, tmp_path)
    for name, other in (("small", "large"), ("large", "small")):
        assert all(line["absent"] == [] for line in lines(tmp_path, name))
        assert all(line["heard"] == [other] for line in lines(tmp_path, name))


def rewards(folder):
    keys = "round", "own_reward_mean", "gradient_norm", "completions", "absent", "heard"
    return [{key: line[key] for key in keys} for line in lines(folder, "small")]
