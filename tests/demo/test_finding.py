"""What the demo finds, by hand: rounds of 960 completions, by itself with all of it of 1,920."""

import pytest

from demo.results import answer, course, result, settings
from potluck.demo.run import curve, gain_of


def test_a_curve_goes_over_the_completions_that_the_model_wrote_itself():
    assert curve([course(0, 0.4)], "-") == [(480, 0.0), (1440, 0.4)]
    assert curve([course(0, 0.4, each=960)], "-") == [(960, 0.0), (2880, 0.4)]
    assert curve([course(0, 0.4, added=0.75)], "+") == [(480, 0.75), (1440, 0.75)]


def test_seeds_are_pooled_and_their_writing_is_not_added_up():
    assert curve([course(0, 0.4), course(0.5, 0.2)], "-") == [
        (480, 0.25),
        (1440, pytest.approx(0.3)),
    ]


def test_small_rounds_are_averaged_over_as_many_completions_as_large_ones():
    # Rounds of 160 completions: 480 around the middle are the round and both its neighbours.
    shares = [share for _, share in curve([course(0, 0, 0.75, 0, 0, each=80)], "-")]
    assert shares == pytest.approx([0, 0.25, 0.25, 0.25, 0])


def test_the_finding_is_when_three_quarters_of_the_weakest_end_are_reached():
    # .75 x .5 in whole steps of .05 is .35: together at 480 + .35 / .4 x 960 = 1,320; with half
    # of the writing at 1,440 + .35 / .5 x 960 = 2,112, with all of it later.
    found = gain_of("adder", settings())
    assert (found.level, found.together, found.by_itself) == pytest.approx((0.35, 1320, 2112))
    told = "right after 1,300 own completions together, by itself after 2,100 at best"
    assert str(found) == f"adder: 35% of subtractions {told}"
    assert found.way == "half"


def test_by_itself_is_the_sooner_of_its_two_ways():
    found = gain_of("adder", settings(alone=[course(0.4, 0.4, each=960)]))
    assert (found.way, found.by_itself) == ("alone", 960)


def test_each_model_is_told_of_what_only_its_partner_can_do():
    assert "additions right after 480 own" in str(gain_of("subtractor", settings()))


def test_nothing_learned_is_said_as_such():
    found = gain_of("adder", dict.fromkeys(settings(), (course(0, 0.05),)))
    assert str(found) == "adder: too few rounds to learn subtractions"


def test_the_rows_have_levels_ratios_and_mean_rewards_over_the_seeds():
    more = answer("half", 0.35, 0.75), answer("alone", 0.85, 0.75), answer("half", 0, 0, "other")
    told = result(answers=(*result().answers, *more)).rows
    assert told == [
        ["adder", "35% of subtractions", "1,300", "2,100", "1.6", "0.62", "0.30", "0.80"]
    ]
