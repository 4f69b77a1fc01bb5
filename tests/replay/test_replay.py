"""A replay is the run again where nothing was changed, and a measurement where something was."""

import json
import math
import shutil
from dataclasses import replace

import msgspec
import pytest
import torch
from rich.console import Console
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

import paper
import tiny
from node.test_learner import batch_of, learner_of, ragged_groups
from potluck.builder.task import make_task
from potluck.config import ConfigError
from potluck.launch.in_process import run
from potluck.model import ModelError
from potluck.node.storage import checkpoint
from potluck.objective import habit
from potluck.replay import run as rehearsal
from potluck.replay.plan import ReplayError, ReplayRow, differences_table, make_plan, table
from potluck.replay.run import RecordedExchange, cosine, node_of, replay, replay_node
from potluck.types import NonFiniteError, RunFolderError

NAMES = ("large", "small")
ROUNDS = 3


@pytest.fixture(scope="module")
def recipe(tiny_models):
    def make(*overrides, names=NAMES):
        return tiny.recipe(
            {name: tiny_models[name] for name in names},
            *("rounds=3", "objective.updates_per_round=2", "objective.divergence_limit=1.0"),
            *("evaluation.every=2", "evaluation.problems=8"),
            *overrides,
        )

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


def before_the_first_round(folder, name, method, scratch):
    """The node, its recording, and the recipe."""
    plan = make_plan(folder, methods=method, node=name, out=scratch / "out")
    tape = RecordedExchange(folder, plan.config.name, name, plan.rounds[name])
    node = node_of(plan.config, method, tape, make_task(plan.config), scratch / "node")
    return node, tape, plan.config


def rehearsed(folder, name, method, scratch):
    """(lines, node) after a replay of one node."""
    node, tape, config = before_the_first_round(folder, name, method, scratch)
    return list(replay_node(node, method, tape.rounds, config)), node


def replayed(folder, methods, out, *, rounds=None, say=pytest.fail, node="small", **options):
    plan = make_plan(folder, methods=methods, node=node, rounds=rounds, out=out)
    return list(replay(plan, say=say, **options))


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


def test_a_weight_of_ones_own_is_that_of_lws_with_another_weight(recipe, tmp_path, monkeypatch):
    """It is code, and goes with a run without log-probabilities."""
    (tmp_path / "own.py").write_text(
        "from potluck.objective.weights import batch_weight, typicality\n"
        "whole = batch_weight(typicality.of)\n"
        "def nobody(rows, options):\n    return rows.own_B.float()\n"
        "def unknown(rows, options):\n    return rows.logp_gen_BT.sum(dim=1)\n"
    )
    monkeypatch.chdir(tmp_path)
    run(recipe('objective={method="lws"}', "rounds=1"), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"runs code, .*'own.py:nobody'.* --trust-code"):
        replayed(tmp_path / "run", "own.py:nobody", tmp_path / "untrusted", say=print)
    methods, options = "lws,own.py:whole,own.py:nobody", {"say": print, "trust_code": True}
    rows = replayed(tmp_path / "run", methods, tmp_path / "out", **options)
    lws, whole, nobody = ((row.cosine, row.gradient_norm) for row in rows)
    assert whole == pytest.approx(lws, abs=1e-6)
    assert nobody != pytest.approx(lws, abs=1e-6)
    with pytest.raises(NonFiniteError, match="every method broke down"):
        # nobody told its log-probabilities
        replayed(tmp_path / "run", "own.py:unknown", tmp_path / "other", **options)


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
    odd = ("objective={method='vis'}", "plan=horizontal", "sampling.temperature=0.8", "seed=5",
           "node.large.lora.r=4", "node.large.lora.dropout=0.2")  # fmt: skip
    run(recipe(*odd), tmp_path / "run")
    _, node = rehearsed(tmp_path / "run", "large", "vis", tmp_path)
    node.learner.policy.network.save_pretrained(tmp_path / "again")
    name = "adapter_model.safetensors"
    saved = checkpoint.checkpoint_folder(tmp_path / "run" / "large", ROUNDS) / name
    assert (tmp_path / "again" / name).read_bytes() == saved.read_bytes()


def test_a_run_at_its_own_pace_comes_back_and_is_measured_on_the_problems_it_wrote(
    recipe, tmp_path, monkeypatch
):
    run(recipe("pace=free", "plan=horizontal"), tmp_path / "run")
    asked, real = [], rehearsal.fresh_groups

    def noted(node, round, ids, *, take):
        asked.append(ids)
        return real(node, round, ids, take=take)

    monkeypatch.setattr(rehearsal, "fresh_groups", noted)
    _, node = rehearsed(tmp_path / "run", "small", "f-tis", tmp_path / "scratch")
    assert has_weights_of(node, tmp_path / "run")
    wrote = [[*line["rewards"]] for line in lines_of(tmp_path / "run", "small", "written")]
    assert [sorted(ids) for ids in asked[::2]] == [sorted(ids) for ids in wrote]


def fresh_groups(node, round=0, take=0):
    return rehearsal.fresh_groups(node, round, list(node.pace.agenda.ids[:4]), take=take)


def test_the_sample_size_over_all_is_that_of_everyones_tokens_by_plain_loops():
    policy, groups = tiny.policy(), ragged_groups(authors=("south", "north"))
    scored = learner_of(policy, tiny.f_tis()).score(batch_of(policy, groups))
    batch = scored.batch
    rows = batch.advantage_B.nonzero().squeeze(1).tolist()
    assert {batch.completions[row].author for row in rows} == {"south", "north"}
    start = [scored.logp_start_BT[row][batch.mask_BT[row]].tolist() for row in rows]
    gen = [batch.completions[row].logp_T.tolist() for row in rows]
    found = rehearsal._everyone(scored).effective_sample_size
    assert found == pytest.approx(paper.effective_sample_size(start, gen), rel=1e-3)


def test_in_the_first_round_all_methods_have_one_gradient_alone_and_their_own_together(
    recipe, recorded, tmp_path
):
    run(recipe("rounds=1", names=["small"]), tmp_path / "alone")
    alone = replayed(tmp_path / "alone", "nois,tis,f-tis,lws", tmp_path / "a")
    assert (len(alone), len({round(line.cosine, 5) for line in alone})) == (4, 1)
    assert all(line.effective_sample_size == pytest.approx(1, abs=1e-4) for line in alone)
    together = replayed(recorded, "nois,tis,f-tis", tmp_path / "b", rounds=1)
    assert len({round(line.cosine, 3) for line in together}) == 3
    assert all(line.effective_sample_size < 0.99 for line in together)
    for lines in (alone, together):  # one model, and the same dice; two draws
        (ceiling,) = {line.ceiling for line in lines}
        assert ceiling < 0.999


@pytest.mark.parametrize("own_success_weight", [1.0, 3.0])
def test_the_on_policy_gradient_is_that_of_the_paper_by_plain_loops(
    recorded, tmp_path, own_success_weight
):
    """Whatever weight the rule that is replayed gives to its own successes."""
    node, *_ = before_the_first_round(recorded, "small", "f-tis", tmp_path)
    objective = msgspec.structs.replace(
        node.learner.objective, own_success_weight=own_success_weight
    )
    learner = replace(node.learner, objective=objective)
    groups = fresh_groups(node)
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
    found = rehearsal.on_policy_gradient(learner, groups)
    assert sum(float(g.square().sum()) for g in expected) > 0
    for mine, theirs in zip(found, expected, strict=True):
        assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


def test_two_takes_are_two_draws_and_one_take_is_one(recorded, tmp_path):
    node, *_ = before_the_first_round(recorded, "small", "f-tis", tmp_path)

    def tokens(round, take):
        groups = fresh_groups(node, round, take)
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
    monkeypatch.setattr(rehearsal, "on_policy_gradient", lambda learner, groups: next(given))
    monkeypatch.setattr(rehearsal, "cosine", lambda a, b: cosine(a if len(a) == 1 else E2, b))
    E2 = [torch.tensor([0.0, 1.0])]
    (line,) = replayed(recorded, "tis", tmp_path / "out", rounds=1)
    assert line.ceiling == pytest.approx(0.6)
    assert line.cosine == pytest.approx((0 + 0.8) / 2)


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


def test_rounds_that_are_missing_or_damaged_are_said_before_anything_is_learned(copied):
    plan = make_plan(copied, methods="tis", node="small", out=copied.parent / "out")
    file = copied / "small" / "rounds" / "000001.ptlk"
    for damage in (lambda: file.write_bytes(b""), file.unlink):
        damage()
        with pytest.raises(ReplayError, match=r"000001.ptlk is missing or damaged.*--rounds 1"):
            next(replay(plan, say=pytest.fail))
    shutil.rmtree(copied / "small" / "rounds")
    before = everything_in(copied)  # a folder of rounds that is missing is not made
    with pytest.raises(ReplayError, match=r"no .*rounds is here, but 'small' learned from it"):
        next(replay(plan, say=pytest.fail))
    assert everything_in(copied) == before


def test_a_model_that_did_not_write_the_first_round_is_refused_before_any_node_learns(
    recipe, tiny_models, tmp_path
):
    model = shutil.copytree(tiny_models["small"], tmp_path / "model")
    run(recipe(f"node.small.model={model}", "rounds=1"), tmp_path / "run")
    plan = make_plan(tmp_path / "run", methods="tis")
    assert list(plan.rounds) == ["large", "small"]
    shutil.rmtree(model)
    tiny.save(model, seed=7)
    with pytest.raises(RunFolderError, match="is not the one that its training began with"):
        next(replay(plan, say=pytest.fail))
    # A checkpoint of 0.2.0 has no digest of that model: then its log-probabilities tell.
    for state in (tmp_path / "run").glob("small/checkpoints/*/state.json"):
        state.write_text(json.dumps(json.loads(state.read_text()) | {"base": "of 0.2.0"}))
    with pytest.raises(
        ReplayError, match=r"of 'small', .* is not the one that wrote round 0 .*; bring that model"
    ):
        next(replay(plan, say=pytest.fail))
    shutil.rmtree(model)
    with pytest.raises(ModelError):
        next(replay(plan, say=pytest.fail))


# The command.


def lines_in(out):
    lines = [json.loads(line) for line in (out / "replay.jsonl").read_text().splitlines()]
    return [(line["node"], line["method"], line["round"]) for line in lines]


def test_it_shows_a_table_leaves_every_line_and_the_runs_folder_as_it_was(
    recorded, potluck_says, tmp_path
):
    before, out = everything_in(recorded), tmp_path / "out"
    words = "--method", "nois,tis", "--rounds", "2", "--out", out
    code, said, complaint = potluck_says("replay", recorded, *words)
    assert (code, complaint, everything_in(recorded) == before) == (0, "", True)
    rows = [row.split() for row in said.splitlines()]
    assert ["small", "NoIS", "1-2"] in [row[:3] for row in rows]
    assert ["small", "TIS", "-", "NoIS", "2"] in [row[:5] for row in rows]
    assert str(out / "replay.jsonl") in said
    assert lines_in(out) == [(n, m, r) for n in NAMES for m in ("nois", "tis") for r in (0, 1)]
    assert [path.name for path in out.iterdir()] == ["replay.jsonl"]
    assert potluck_says("replay", recorded, "--out", out)[::2] == (
        2, f"potluck: {out} exists; --out names another folder, or remove it\n",
    )  # fmt: skip


def test_a_method_that_breaks_down_is_said_and_the_next_one_begins(
    recorded, potluck_says, tmp_path, monkeypatch
):
    true, task, trusted, broken = rehearsal.replay_node, rehearsal.make_task, [], {"nois"}

    def breaks(node, method, *rest):
        if method in broken:
            raise NonFiniteError("the weights are not finite")
        yield from true(node, method, *rest)

    def make_task(config, *, trust_code, **grading):
        trusted.append(trust_code)
        return task(config, trust_code=trust_code, **grading)

    monkeypatch.setattr(rehearsal, "replay_node", breaks)
    monkeypatch.setattr(rehearsal, "make_task", make_task)
    words = "replay", recorded, "--method", "nois,tis", "--node", "small", "--rounds", "1", "--out"
    told = [f"potluck: {name} broke down: the weights are not finite" for name in ("nois", "tis")]
    code, _, complaint = potluck_says(*words, tmp_path / "a", "--trust-code")
    assert (code, complaint.splitlines(), trusted) == (0, told[:1], [True])
    assert lines_in(tmp_path / "a") == [("small", "tis", 0)]
    broken.add("tis")
    told.append("potluck: every method broke down; nothing can be compared")
    code, said, complaint = potluck_says(*words, tmp_path / "b")
    assert (code, said, complaint.splitlines()) == (1, "", told)


def test_ctrl_c_keeps_the_lines_that_are_there(recorded, potluck_says, tmp_path, monkeypatch):
    true = rehearsal.replay

    def stopped(plan, *, say, trust_code):
        lines = true(plan, say=say, trust_code=trust_code)
        yield next(lines)
        lines.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(rehearsal, "replay", stopped)
    code, said, complaint = potluck_says("replay", recorded, "--out", tmp_path / "out")
    assert code == 130
    assert complaint == "potluck: stopped; 1 lines are kept; a replay begins anew each time\n"
    assert ["large", "NoIS", "1-1"] in [row.split()[:3] for row in said.splitlines()]
    assert lines_in(tmp_path / "out") == [("large", "nois", 0)]


def test_what_is_wrong_is_one_line_and_nothing_is_written(recorded, potluck_says, tmp_path):
    (tmp_path / "file").write_text("")
    for folder, words, complaint in (
        ("nowhere", (), "there is no run folder nowhere"),
        (".", (), ". is no run: it has no recipe.json"),
        (recorded, ("--out", tmp_path / "file/out"), "; --out names another folder"),
        (recorded, ("--method", "nois,f-tsi"), "--method has 'f-tsi'; did you mean 'f-tis'?"),
        (recorded, ("--method", "ppo"), "--method has 'ppo'; there is nois, vis, tis"),
        (recorded, ("--method", " ,"), "--method is ' ,'; choose some of nois,vis,"),
        (recorded, ("--node", "smal"), "; did you mean 'small'?"),
    ):
        code, said, complained = potluck_says("replay", folder, *words)
        assert (code, said, complaint in complained) == (2, "", True), complained
        assert complained.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert not (recorded / "replay").exists()


def line(method="tis", round=0, **known):
    nothing = dict.fromkeys(ReplayRow.__dataclass_fields__)
    return ReplayRow(**{**nothing, "node": "small", "method": method, "round": round,
                   "filtered_share": 0.0, "sources": {}, **known})  # fmt: skip


def printed(lines, table):
    console = Console(width=80)
    with console.capture() as caught:
        console.print(table(lines, console))
    return [row.split() for row in caught.get().splitlines()]


def test_the_table_has_the_mean_of_what_was_measured():
    lines = [line(cosine=0.2), line(round=1), line(round=2, cosine=0.6, filtered_share=0.3)]
    last = printed(lines, table)[-1]
    assert last == ["small", "TIS", "1-3", "0.400", "-", "-", "-", "10%", "-"]


def test_the_last_table_has_the_difference_of_each_two_methods_paired_over_rounds():
    lines = [line("nois", at, cosine=x, ceiling=0.5) for at, x in enumerate((0.1, 0.2, 0.3))]
    # Differences .1, .3, .2: mean .2, s = .1; 4.3027 s / sqrt(3) = .248
    lines += [line("tis", at, cosine=x) for at, x in enumerate((0.2, 0.5, 0.5))]
    lines += [line("lws", 2, cosine=0.9), line("nois", node="large")]
    assert printed(lines, differences_table)[1:] == [
        ["small", "TIS", "-", "NoIS", "3", "+.200", "[-.048,", "+.448]", "-"],
        ["small", "LWS", "-", "NoIS", "1", "-", "-"],
        ["small", "LWS", "-", "TIS", "1", "-", "-"],
    ]
