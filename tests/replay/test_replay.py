"""A replay is the run again where nothing was changed, and a measurement where something was."""

import json
import math
import shutil

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

import paper
import tiny
from node.test_learner import batch_of, learner_of, ragged_groups
from potluck.builder.task import make_task
from potluck.config import ConfigError, from_tree
from potluck.launch.in_process import run
from potluck.model import ModelError
from potluck.node.storage import checkpoint
from potluck.objective import habit
from potluck.replay import measure
from potluck.replay import run as rehearsal
from potluck.replay.measure import (
    cosine,
    fresh_groups,
    on_policy_gradient,
    replay_node,
)
from potluck.replay.plan import ReplayError, make_plan
from potluck.replay.run import RecordedExchange, node_of, replay
from potluck.types import NonFiniteError

NAMES = ("large", "small")
ROUNDS = 3


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {name: tiny.save(folder / name, seed=i) for i, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def recipe(models):
    def make(*overrides, names=NAMES):
        tree = {
            "name": "tiny",
            "rounds": ROUNDS,
            "problems_per_round": 4,
            "group_size": 4,
            "threads": 1,
            "task": {"name": "digits", "reward": "hash"},
            "sampling": {"max_new_tokens": 6, "max_total_tokens": 32},
            "objective": {"method": "f-tis", "divergence_limit": 1.0, "updates_per_round": 2},
            "evaluation": {"every": 2, "problems": 8, "out_of_distribution": 0},
            "node": {name: {"model": models[name], "learning_rate": 1e-3} for name in names},
        }
        return from_tree(tree, overrides)

    return make


@pytest.fixture(scope="module")
def recorded(recipe, tmp_path_factory):
    """The folder of a run of two nodes. Nobody may write to it."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(recipe(), folder)
    return folder


def lines_of(folder, node, name):
    text = (folder / node / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def everything_in(folder):
    return {p: p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def rehearsed(folder, name, method, scratch):
    """(lines, node) after a replay of one node."""
    plan = make_plan(folder, methods=method, node=name, out=scratch / "out")
    tape = RecordedExchange(folder, plan.config.name, name, plan.rounds[name])
    made = plan.config, method, tape, make_task(plan.config), scratch / "node"
    node = node_of(*made, trust_code=True)
    return list(replay_node(node, method, tape.rounds, plan.config)), node


def has_weights_of(node, folder):
    place = checkpoint.checkpoint_folder(folder / node.name, ROUNDS)
    saved = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32).state_dict()
    own = node.learner.policy.network.state_dict()
    return all(torch.equal(own[name], saved[name]) for name in saved)


def test_with_the_runs_own_method_the_runs_weights_come_back_to_the_bit(recorded, tmp_path):
    lines, node = rehearsed(recorded, "small", "f-tis", tmp_path)
    assert has_weights_of(node, recorded)
    for line, was in zip(lines, lines_of(recorded, "small", "metrics"), strict=True):
        same = ("round", "filtered_share", "gradient_norm", "updates")
        assert {key: getattr(line, key) for key in same} == {key: was[key] for key in same}
        for author, source in was["sources"].items():
            assert source == line.sources[author]
    asked = {
        line["round"]: line["validation"] for line in lines_of(recorded, "small", "evaluation")
    }
    seen = {line.round + 1: line.validation for line in lines if line.validation is not None}
    assert seen == {2: asked[2], 3: asked[3]}


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """Names of weights of one's own: that of LWS, and one that is 0 for others."""
    (tmp_path / "own.py").write_text(
        "from potluck.objective.weights import batch_weight, typicality\n"
        "whole = batch_weight(typicality.of)\n"
        "def nobody(rows, options):\n    return rows.own_B.float()\n"
        "def unknown(rows, options):\n    return rows.logp_gen_BT.sum(dim=1)\n"
    )
    monkeypatch.chdir(tmp_path)
    return {name: f"own.py:{name}" for name in ("whole", "nobody", "unknown")}


def test_a_weight_of_ones_own_is_that_of_lws_with_another_weight(recipe, tmp_path, weights):
    """It is code, and goes with a run without log-probabilities."""
    run(recipe('objective={method="lws"}', "rounds=1"), tmp_path / "run")

    def replayed(*methods, **options):
        out = tmp_path / "-".join(methods).replace(":", "-")
        plan = make_plan(tmp_path / "run", methods=",".join(methods), node="small", out=out)
        rows = replay(plan, say=print, **options)
        return {row.method: (row.cosine, row.gradient_norm) for row in rows}

    with pytest.raises(ConfigError, match=r"runs code, .*'own.py:nobody'.* --trust-code"):
        replayed(weights["nobody"])
    found = replayed("lws", weights["whole"], weights["nobody"], trust_code=True)
    assert found[weights["whole"]] == pytest.approx(found["lws"], abs=1e-6)
    assert found[weights["nobody"]] != pytest.approx(found["lws"], abs=1e-6)
    with pytest.raises(NonFiniteError, match="every method broke down"):
        replayed(weights["unknown"], trust_code=True)  # nobody told its log-probabilities


def test_the_habit_test_works_in_a_replay_as_in_the_run(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(habit, "SHARE", 0.1)  # these models have no more of a habit
    monkeypatch.setattr(habit, "FOREIGN", 0.05)
    run(recipe('objective={method="lws", habit_test=true}', "group_size=12"), tmp_path / "run")
    lines, node = rehearsed(tmp_path / "run", "small", "lws", tmp_path)
    assert has_weights_of(node, tmp_path / "run")
    found = [line.sources["large"] for line in lines]
    assert any(its["silenced_share"] for its in found)
    was = [line["sources"]["large"] for line in lines_of(tmp_path / "run", "small", "metrics")]
    for key in ("tested_habit", "habit_gain", "habit_gain_error", "silenced_share"):
        assert [its[key] for its in found] == [its[key] for its in was]


def test_adapters_dropout_and_strange_settings_come_back_too(recipe, tmp_path):
    odd = ("objective.method=vis", "plan=horizontal", "sampling.temperature=0.8", "seed=5",
           "node.large.lora.r=4", "node.large.lora.dropout=0.2")  # fmt: skip
    config = recipe(*odd[1:], 'objective={"method"="vis"}')
    run(config, tmp_path / "run")
    _, node = rehearsed(tmp_path / "run", "large", "vis", tmp_path)
    node.learner.policy.network.save_pretrained(tmp_path / "again")
    name = "adapter_model.safetensors"
    saved = checkpoint.checkpoint_folder(tmp_path / "run" / "large", ROUNDS) / name
    assert (tmp_path / "again" / name).read_bytes() == saved.read_bytes()


def test_a_run_at_its_own_pace_comes_back_and_is_measured_on_the_problems_it_wrote(
    recipe, tmp_path, monkeypatch
):
    run(recipe("pace=free", "plan=horizontal"), tmp_path / "run")
    asked = []
    real = measure.fresh_groups

    def noted(node, round, ids, *, take):
        asked.append(ids)
        return real(node, round, ids, take=take)

    monkeypatch.setattr(measure, "fresh_groups", noted)
    _, node = rehearsed(tmp_path / "run", "small", "f-tis", tmp_path / "scratch")
    assert has_weights_of(node, tmp_path / "run")
    wrote = [[*line["rewards"]] for line in lines_of(tmp_path / "run", "small", "written")]
    assert [sorted(ids) for ids in asked[::2]] == [sorted(ids) for ids in wrote]


def test_a_replay_leaves_the_runs_folder_as_it_was(recorded, tmp_path):
    before = everything_in(recorded)
    plan = make_plan(recorded, methods="tis", rounds=1, out=tmp_path / "out")
    lines = list(replay(plan, say=pytest.fail))
    assert [(line.node, line.method, line.round) for line in lines] == [
        (node, "tis", 0) for node in NAMES
    ]
    assert everything_in(recorded) == before
    assert not list((tmp_path / "out").iterdir())


@pytest.fixture
def first_node(recorded, tmp_path):
    """A node of the run before its first round."""

    def make(method="f-tis", folder=recorded, name="small"):
        plan = make_plan(folder, methods=method, node=name, out=tmp_path / "out")
        tape = RecordedExchange(folder, plan.config.name, name, plan.rounds[name])
        return node_of(plan.config, method, tape, make_task(plan.config), tmp_path / method)

    return make


def some_ids(node, count=4):
    return list(node.pace.agenda.ids[:count])


def test_the_sample_size_over_all_is_that_of_everyones_tokens_by_plain_loops():
    policy, groups = tiny.policy(), ragged_groups(authors=("south", "north"))
    scored = learner_of(policy, tiny.f_tis()).score(batch_of(policy, groups))
    batch = scored.batch
    rows = batch.advantage_B.nonzero().squeeze(1).tolist()
    assert {batch.completions[row].author for row in rows} == {"south", "north"}
    start = [scored.logp_start_BT[row][batch.mask_BT[row]].tolist() for row in rows]
    gen = [batch.completions[row].logp_T.tolist() for row in rows]
    found = measure._everyone(scored).effective_sample_size
    assert found == pytest.approx(paper.effective_sample_size(start, gen), rel=1e-3)


def test_alone_in_the_first_round_all_methods_have_one_gradient(recipe, tmp_path):
    run(recipe("rounds=1", names=["small"]), tmp_path / "alone")
    plan = make_plan(tmp_path / "alone", methods="nois,tis,f-tis,lws", out=tmp_path / "out")
    lines = list(replay(plan, say=pytest.fail))
    assert len(lines) == 4
    assert len({round(line.cosine, 5) for line in lines}) == 1
    assert len({line.ceiling for line in lines}) == 1
    assert all(line.effective_sample_size == pytest.approx(1, abs=1e-4) for line in lines)


def test_together_methods_part_in_the_first_round(recorded, tmp_path):
    out = tmp_path / "out"
    plan = make_plan(recorded, methods="nois,tis,f-tis", node="small", rounds=1, out=out)
    lines = list(replay(plan, say=pytest.fail))
    assert len({round(line.cosine, 3) for line in lines}) == 3
    assert len({line.ceiling for line in lines}) == 1  # one model, and the same dice
    assert all(line.effective_sample_size < 0.99 for line in lines)


def test_the_on_policy_gradient_is_that_of_the_paper_by_plain_loops(first_node):
    node = first_node()
    groups = fresh_groups(node, 0, some_ids(node), take=0)
    policy = node.learner.policy
    network = policy.network
    total, count = 0.0, sum(len(group.rows) for group in groups)
    for group in groups:
        for row, a in zip(group.rows, paper.advantages(group.rewards), strict=True):
            c = row.completion
            prompt = policy.prompt(group.problem).tolist()
            ids = torch.tensor([prompt + c.token_T.tolist()])
            logits = network(input_ids=ids).logits[0, :, : tiny.VOCABULARY].double()
            logp = [
                logits[len(prompt) + t - 1].log_softmax(dim=0)[int(token)]
                for t, token in enumerate(c.token_T)
            ]
            total = total + paper.nois_objective(
                [logp], [[x.item() for x in logp]], None, [a], epsilon=0.2
            )
    (-total / count).backward()
    expected = [p.grad.clone() for p in network.parameters() if p.requires_grad]
    network.zero_grad()
    found = on_policy_gradient(node.learner, groups)
    assert sum(float(g.square().sum()) for g in expected) > 0
    for mine, theirs in zip(found, expected, strict=True):
        assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


def test_two_takes_are_two_draws_and_one_take_is_one(first_node):
    node = first_node()

    def tokens(round, take):
        groups = fresh_groups(node, round, some_ids(node), take=take)
        assert [len(group.rows) for group in groups] == [4] * 4
        return [row.token_T.tolist() for group in groups for row in group.rows]

    assert tokens(0, 0) == tokens(0, 0)
    assert tokens(0, 0) != tokens(0, 1)
    assert tokens(0, 0) != tokens(1, 0)


def test_a_cosine_is_that_of_plain_loops():
    torch.manual_seed(0)
    a, b = ([torch.randn(3, 4), torch.randn(5)] for _ in "ab")
    flat_a, flat_b = (torch.cat([t.flatten() for t in each]).tolist() for each in (a, b))
    dot = sum(x * y for x, y in zip(flat_a, flat_b, strict=True))
    length = math.sqrt(sum(x * x for x in flat_a)) * math.sqrt(sum(y * y for y in flat_b))
    assert cosine(a, b) == pytest.approx(dot / length, rel=1e-9)
    assert cosine(a, [-t for t in a]) == pytest.approx(-1)
    assert cosine(a, [None, b[1]]) == pytest.approx(cosine([a[0], a[1]], [b[0] * 0, b[1]]))
    assert cosine(a, None) is None
    assert cosine(a, [t * 0 for t in a]) is None


def test_the_cosine_is_with_both_estimates_and_the_ceiling_is_between_them(
    recorded, tmp_path, monkeypatch
):
    given = iter([[torch.tensor([1.0, 0.0])], [torch.tensor([3.0, 4.0])]])
    monkeypatch.setattr(measure, "on_policy_gradient", lambda learner, groups: next(given))
    monkeypatch.setattr(measure, "cosine", lambda a, b: cosine(a if len(a) == 1 else E2, b))
    E2 = [torch.tensor([0.0, 1.0])]
    plan = make_plan(recorded, methods="tis", node="small", rounds=1, out=tmp_path / "out")
    (line,) = replay(plan, say=pytest.fail)
    assert line.ceiling == pytest.approx(0.6)
    assert line.cosine == pytest.approx((0 + 0.8) / 2)


def test_a_method_that_breaks_down_is_said_and_the_next_one_begins(recorded, tmp_path, monkeypatch):
    true = rehearsal.replay_node

    def breaks(node, method, *rest):
        if method == "nois":
            raise NonFiniteError("round 0, node 'small': the weights are not finite")
        yield from true(node, method, *rest)

    monkeypatch.setattr(rehearsal, "replay_node", breaks)
    said = []
    plan = make_plan(recorded, methods="nois,tis", node="small", rounds=1, out=tmp_path / "out")
    assert [line.method for line in replay(plan, say=said.append)] == ["tis"]
    assert said == ["nois broke down: round 0, node 'small': the weights are not finite"]


@pytest.fixture
def copied(recorded, tmp_path):
    """A copy of the run that may be broken."""
    return shutil.copytree(recorded, tmp_path / "copy")


def test_a_round_that_the_node_was_away_from_is_left_out(copied):
    metrics = copied / "small" / "metrics.jsonl"
    first, _, last = metrics.read_text().splitlines(keepends=True)
    metrics.write_text(first + last)
    (copied / "small" / "rounds" / "000001.ptlk").unlink()
    plan = make_plan(copied, methods="tis", node="small")
    assert plan.rounds == {"small": (0, 2)}
    assert [line.round for line in replay(plan, say=pytest.fail)] == [0, 2]


def test_a_node_that_is_elsewhere_is_left_out_unless_it_is_asked_for(copied):
    shutil.rmtree(copied / "large")
    assert list(make_plan(copied, methods="tis").rounds) == ["small"]
    with pytest.raises(ReplayError, match=r"'large' of .* has no round that could be replayed"):
        make_plan(copied, methods="tis", node="large")


def test_a_round_that_is_missing_or_damaged_is_said_before_anything_is_learned(copied):
    plan = make_plan(copied, methods="tis", node="small")
    file = copied / "small" / "rounds" / "000001.ptlk"
    for damage in (lambda: file.write_bytes(b""), file.unlink):
        damage()
        with pytest.raises(ReplayError, match=r"000001.ptlk is missing or damaged.*--rounds 1"):
            next(replay(plan, say=pytest.fail))


def test_a_folder_of_rounds_that_is_missing_is_said_and_not_made(copied):
    shutil.rmtree(copied / "small" / "rounds")
    plan = make_plan(copied, methods="tis", node="small", out=copied.parent / "out")
    before = everything_in(copied)
    with pytest.raises(ReplayError, match=r"there is no .*rounds, but 'small' learned from rounds"):
        next(replay(plan, say=pytest.fail))
    assert everything_in(copied) == before


def test_a_model_that_did_not_write_the_first_round_is_refused_before_any_node_learns(
    recipe, models, tmp_path
):
    model = shutil.copytree(models["small"], tmp_path / "model")
    run(recipe(f"node.small.model={model}", "rounds=1"), tmp_path / "run")
    plan = make_plan(tmp_path / "run", methods="tis")
    assert list(plan.rounds) == ["large", "small"]
    shutil.rmtree(model)
    tiny.save(model, seed=7)
    with pytest.raises(
        ReplayError, match=r"of 'small', .* is not the one that wrote round 0 .*; bring that model"
    ):
        next(replay(plan, say=pytest.fail))
    shutil.rmtree(model)
    with pytest.raises(ModelError):
        next(replay(plan, say=pytest.fail))


@pytest.mark.parametrize(
    "words, complaint",
    [
        ({"methods": "nois,f-tsi"}, "--method has 'f-tsi'; did you mean 'f-tis'?"),
        ({"methods": "ppo"}, "--method has 'ppo'; there is nois, vis, tis"),
        ({"methods": " ,"}, "--method is ' ,'; choose some of nois,vis,"),
        ({"methods": "tis", "node": "smal"}, "--node is 'smal'.*did you mean 'small'?"),
    ],
)
def test_what_was_mistyped_is_said(recorded, words, complaint):
    with pytest.raises(ReplayError, match=complaint.replace("?", r"\?")):
        make_plan(recorded, **words)
