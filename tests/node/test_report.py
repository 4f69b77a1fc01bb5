"""What a round leaves: its figures, and completions token by token, against plain loops."""

import json
import math
import statistics
from dataclasses import replace
from functools import cache

import pytest
import torch
from msgspec import json as lines_of_json

import tiny
from node.test_learner import row_logp
from node.test_trust import OTHER, OWN, THIRD, groups_of, learner_of
from potluck.exchange import Round
from potluck.launch.in_process import run
from potluck.node.learning.batch import pack
from potluck.node.report import lines_of, report_of, sample
from potluck.node.selection import Selection
from potluck.node.storage.record import RECORDED, Record
from potluck.objective.methods import METHODS, ObjectiveConfig
from potluck.reports import RewardReport
from potluck.reports.tokens import DIGITS, FARTHEST, LONGEST_PIECE, STEP, Recorded, columns_of
from potluck.types import Group

NOTHING = Selection((), 0, {}, 0, 0, 0, 0)


def report(groups, policy, reference=None, **changes):
    objective = tiny.f_tis(beta=1e-6 if reference else 0.0)
    learner = replace(learner_of(policy, objective), reference=reference)
    update = replace(learner.learn(pack(groups), lambda done, total: None), **changes)
    return report_of(0, OWN, groups, update, {}, NOTHING, Round(()))


def cut_off(group, at):
    """The group with its row ``at`` without a stop token."""
    rows = list(group.rows)
    rows[at] = replace(rows[at], completion=replace(rows[at].completion, end="length"))
    return Group(group.problem, tuple(rows), group.rewards)


def test_an_authors_share_of_the_gradient_is_in_its_report():
    policy = tiny.policy(sharpness=4)
    found = report(groups_of(policy), policy, shares={OTHER: 0.125})
    assert found.sources[OTHER].gradient_share == 0.125


def test_each_figure_is_what_a_plain_loop_finds():
    policy = tiny.policy(sharpness=4)
    groups = groups_of(policy)
    groups = [cut_off(groups[0], 0), *groups[1:-1], replace(groups[-1], rewards=(1.0,) * 12)]
    lengths, cut, alike, surprise = [], 0, 0, []
    for group in groups:
        alike += all(reward == group.rewards[0] for reward in group.rewards)
        for row in group.rows:
            if row.completion.author == OWN:
                lengths.append(len(row.token_T))
                cut += row.completion.end == "length"
                if not all(reward == group.rewards[0] for reward in group.rewards):
                    surprise += [-logp for logp in read_by(policy, row)]
    found = report(groups, policy)
    assert found.own_length_mean == pytest.approx(sum(lengths) / len(lengths))
    assert found.own_cut_share == pytest.approx(cut / len(lengths))
    assert found.own_cut_share > 0
    assert found.groups_alike == pytest.approx(alike / len(groups))
    assert 0 < found.groups_alike < 1
    assert found.entropy == pytest.approx(sum(surprise) / len(surprise), rel=1e-4)


def test_without_own_completions_nothing_is_made_up():
    policy = tiny.policy(sharpness=4)
    found = report(groups_of(policy, authors=(OTHER,)), policy)
    assert (found.own_length_mean, found.own_cut_share, found.entropy) == (None, None, None)
    assert found.groups_alike is not None


def test_each_reward_function_has_the_mean_and_deviation_of_ones_own():
    """As TRL's ``rewards/NAME/mean`` and ``/std`` (1.16: nanmean and nanstd over the batch)."""
    policy = tiny.policy(sharpness=4)
    groups, own = [], {"right": [], "brief": []}
    for at, group in enumerate(groups_of(policy)):
        parts = {"right": group.rewards, "brief": tuple(at - i / 7 for i in range(len(group.rows)))}
        groups.append(replace(group, parts=parts))
        for name, values in parts.items():
            both = zip(group.rows, values, strict=True)
            own[name] += [value for row, value in both if row.completion.author == OWN]
    found = report(groups, policy).rewards
    assert list(found) == ["right", "brief"]
    for name, values in own.items():
        assert found[name].mean == pytest.approx(statistics.mean(values))
        assert found[name].std == pytest.approx(statistics.stdev(values))
    others = [replace(g, parts={"x": g.rewards}) for g in groups_of(policy, authors=(OTHER,))]
    assert report(others, policy).rewards["x"] == RewardReport(None, None, binary=True)
    for at, line in enumerate(lines_of(0, groups[0])):
        assert line["reward/brief"] == groups[0].parts["brief"][at]
    alone = replace(groups[0], parts={"task": groups[0].rewards})  # it is the reward
    assert "reward/task" not in lines_of(0, alone)[0]


def test_the_kl_is_the_mean_of_k3_over_ones_own_tokens():
    policy, other = tiny.policy(sharpness=4), tiny.policy(sharpness=3)
    groups = groups_of(policy)
    found = report(groups, policy, reference=other)
    parts = []
    for group in groups:
        for row in group.rows:
            if row.completion.author == OWN:
                start, reference = read_by(tiny.policy(sharpness=4), row), read_by(other, row)
                for s, r in zip(start, reference, strict=True):
                    parts.append(math.exp(r - s) - (r - s) - 1)
    assert found.kl == pytest.approx(sum(parts) / len(parts), rel=1e-4)
    assert found.kl > 1e-3


# Token by token.

PLENTY = 10**9
FIRST = {"round": 0, "problem": "p", "author": "a", "index": 0, "advantage": 1.0, "kept": 1.0}


def tokens_of(line):
    """(text, number) of each token, decoded as the page does it."""
    text, numbers, found = line.text, iter(line.numbers), []
    for digit in line.lengths:
        piece, text = text[: (size := DIGITS.index(digit))], text[size:]
        steps = (
            64 * DIGITS.index(next(numbers)) + DIGITS.index(next(numbers)) if line.numbers else 0
        )
        found.append((piece, round((steps - FARTHEST) * STEP, 2) if line.numbers else None))
    assert text == "".join(numbers) == ""
    return found


@cache
def scored_of(method, trusts, fields, options):
    objective = ObjectiveConfig(**METHODS[method].fields | dict(options))
    policy = tiny.policy(sharpness=4)
    groups = groups_of(policy, **dict(fields))
    batch = pack(groups, scale=objective.advantage_scale, trusts=trusts)
    learner = learner_of(policy, objective)
    return groups, learner.score(batch), learner


def everybody(author):
    return True


def recorded(method="f-tis", *, trusts=everybody, size_bytes=PLENTY, round=0, **options):
    fields = {key: options.pop(key) for key in ("claims", "authors", "failing") if key in options}
    given = tuple(fields.items()), tuple(options.items())
    groups, scored, learner = scored_of(method, trusts, *given)
    return sample(round, groups, scored, learner, size_bytes=size_bytes), groups, scored, learner


def read_by(policy, row):
    """ln p of each token, by a forward pass of the row alone."""
    with torch.no_grad():
        logp = row_logp(policy.network, row.prompt_P, row.completion, 1.0)
    return [each.item() for each in logp]


@pytest.mark.parametrize(("claims", "measure"), [("as they are", "log-ratio"), (None, "ln p")])
def test_numbers_are_those_of_plain_loops(claims, measure):
    lines, groups, scored, learner = recorded("tis", claims=claims)
    of_row = {(line.problem, line.author, line.index): line for line in lines}
    rows = [row for group in groups for row in group.rows]
    assert len(of_row) == len(lines) == len(rows)
    for at, row in enumerate(rows):
        one = row.completion
        line = of_row[one.problem_id, one.author, one.index]
        assert line.advantage == pytest.approx(scored.batch.advantage_B[at].item(), abs=5e-4)
        assert line.kept == pytest.approx(scored.kept_advantage_B[at].item(), abs=5e-4)
        if not scored.batch.advantage_B[at]:
            assert {number for _, number in tokens_of(line)} == {None}
            assert line.surprise is None
            continue
        told = one.logp_T is not None
        assert line.measure == ("log-ratio" if told else "ln p")
        here = read_by(learner.policy, row)
        expected = [gen - now for gen, now in zip(one.logp_T, here, strict=True)] if told else here
        numbers = [number for _, number in tokens_of(line)]
        assert numbers == pytest.approx(expected, abs=STEP)
        assert line.surprise == pytest.approx(max(map(abs, expected)), abs=1e-3)
        assert [text for text, _ in tokens_of(line)] == [
            learner.policy.tokenizer.decode([id]) for id in row.token_T
        ]
    assert measure in {line.measure for line in lines if line.author == OTHER}


def test_an_episode_has_the_lengths_of_its_turns():
    _, (group, *others), scored, learner = recorded("tis")
    first, *rows = group.rows
    turns = (1, len(first.token_T) - 1)
    played = replace(first, completion=replace(first.completion, turns=turns, observed=b"12"))
    groups = [replace(group, rows=(played, *rows)), *others]
    lines = sample(0, groups, scored, learner, size_bytes=PLENTY)
    assert sorted(line.turns for line in lines)[-2:] == [(), turns]


def whys(*args, **options):
    lines, *_ = recorded(*args, **options)
    return {(line.author, line.why.split(" 0.")[0]) for line in lines}


def test_each_reason_is_told():
    alike = "its reward is the mean of its group"
    assert {why for _, why in whys("tis")} <= {"", alike}
    assert (OTHER, "not read: a failure of another author") in whys("lws")
    assert (OWN, "not read: a failure of another author") not in whys("lws")
    assert (OTHER, "weight") in {(a, w.split(",")[0].split(" ")[0]) for a, w in whys("lws")}
    assert (OTHER, "not read: of another author") in whys("tis", others="none")
    far = "filtered: bad, and far from what this model writes"
    assert (OTHER, far) in whys("f-tis", divergence_limit=1e-9)
    assert (OTHER, far) not in whys("f-tis", divergence_limit=1e9)
    untrusted = whys("tis", trusts=lambda author: author == OWN)
    assert (OTHER, "not read: a failure of another author") in untrusted
    assert (OWN, "weight 2") in whys("tis", own_success_weight=2.0)


def test_a_row_without_a_finite_number_says_so():
    _, groups, scored, learner = recorded("tis")
    at = next(at for at, row in enumerate(scored.batch.completions) if scored.kept_advantage_B[at])
    again = sample(0, groups, scored.without({at: "weight"}), learner, size_bytes=PLENTY)
    assert "left out: not finite (weight)" in {line.why for line in again}


def kind_of(line):
    return line.author, line.kept != 0, line.advantage > 0


def test_lines_fit_the_room_and_the_most_surprising_come_first():
    lines, *_ = recorded("tis")
    sizes = [len(lines_of_json.encode(line)) + 1 for line in lines]
    for count in (0, 1, 3):
        few, *_ = recorded("tis", size_bytes=sum(sizes[:count]))
        assert few == lines[:count]
    kinds = set(map(kind_of, lines))
    assert set(map(kind_of, lines[: len(kinds)])) == kinds
    for kind in kinds:
        mine = [line for line in lines if kind_of(line) == kind]
        surprise = [max((abs(n or 0) for _, n in tokens_of(line)), default=0) for line in mine]
        assert surprise == sorted(surprise, reverse=True)


def test_where_one_fits_each_kind_has_its_turn():
    lines, *_ = recorded("lws", authors=(OWN, OTHER, THIRD))
    kinds = set(map(kind_of, lines))
    three = {"authors": (OWN, OTHER, THIRD)}
    turns = [recorded("lws", round=at, **three)[0][0] for at in range(len(kinds))]
    assert {kind_of(line) for line in turns} == kinds


def test_what_is_recorded_stays_below_its_share_of_the_rounds_files(tmp_path, tiny_models):
    nodes = {name: tiny_models[name] for name in ("large", "small")}
    run(tiny.recipe(nodes, "rounds=3"), tmp_path / "run")
    for name in nodes:
        folder = tmp_path / "run" / name
        rounds = sum(file.stat().st_size for file in (folder / "rounds").iterdir())
        recorded = (folder / "recorded.jsonl").read_bytes()
        assert 0.05 * rounds < len(recorded) <= RECORDED * rounds < 0.2 * rounds
        written = map(json.loads, (folder / "completions.jsonl").read_text().splitlines())
        texts = {(x["round"], x["problem"], x["author"], x["index"]): x["text"] for x in written}
        for line in recorded.splitlines():
            one = lines_of_json.decode(line, type=Recorded)
            text = texts[one.round, one.problem, one.author, one.index]
            pieces = [piece for piece, _ in tokens_of(one)]
            assert "".join(p for p in pieces if p not in ("<pad>", "<bos>", "<eos>")) == text


def test_room_that_a_round_leaves_is_the_next_ones(tmp_path):
    record = Record(tmp_path, run="tiny", node="north")
    assert record.room_for_sample(1000) == RECORDED * 1000
    record.add_sample([Recorded(**FIRST)])
    used = (tmp_path / "recorded.jsonl").stat().st_size
    assert record.room_for_sample(1000) == RECORDED * 2000 - used


def test_columns_restore_texts_and_numbers():
    pieces, numbers = ["", "é", "x" * 100, "\n<|end|>"], [0.004, -3.337, 1e9, -math.inf]
    line = Recorded(**FIRST, **columns_of(pieces, numbers))
    texts, found = zip(*tokens_of(line), strict=True)
    assert list(texts) == ["", "é", "x" * LONGEST_PIECE, "\n<|end|>"]
    assert found == pytest.approx((0, -3.34, FARTHEST * STEP, -FARTHEST * STEP))
