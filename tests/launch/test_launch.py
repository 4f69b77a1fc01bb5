"""A whole swarm in one process: real models, real exchange, real folders."""

import json
import os
import shutil
import signal
from dataclasses import replace
from typing import get_args

import msgspec
import numpy as np
import pytest
import torch
from safetensors import SafetensorError

import tiny
from displays import Listener
from launch.runs import Crash, Hears, crash, left_by, lines, recipes, rewrite_round
from potluck.builder.plan import plan_cost
from potluck.builder.task import make_task
from potluck.config import RunConfig, as_tree, from_tree
from potluck.files import derived_seed
from potluck.launch import rounds as launch_module
from potluck.launch.in_process import run
from potluck.model import LanguageModel, ModelError, Reader
from potluck.node.loop import Node
from potluck.node.participant import Participant
from potluck.node.storage import checkpoint
from potluck.node.storage.folder import rounds_saved
from potluck.node.storage.resume import prepare_resume
from potluck.rollout.hf import HFEngine
from potluck.tasks.arithmetic import DigitsOptions
from potluck.types import NonFiniteError, RunFolderError

NAMES = ("large", "small")


EVALUATION = {"every": 2, "problems": 4, "out_of_distribution": 4}
recipe = recipes("rounds=4", "checkpoint_every=2", evaluation=EVALUATION)


@pytest.fixture(scope="module")
def models(tiny_models):
    return tiny_models


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory):
    """The folder of a run that nothing interrupted. Nobody may write to it."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    result = run(recipe(), folder)
    assert (result.rounds, result.interrupted, {*result.accuracy}) == (4, False, {*NAMES})
    return folder


@pytest.fixture(scope="module")
def whole_outcome(whole):
    return outcome(whole)


def outcome(folder, rounds=4):
    """All that a run leaves, seconds, sizes and cards aside."""
    return {
        node: (
            *left_by(folder, node, rounds)[:3],
            lines(folder, node, "evaluation"),
            [file.read_bytes() for file in sorted((folder / node / "rounds").iterdir())],
        )
        for node in NAMES
    }


def test_a_run_repeats_to_the_bit_in_whatever_order_nodes_stand(recipe, whole_outcome, tmp_path):
    run(recipe(names=NAMES[::-1]), tmp_path / "back")
    assert outcome(tmp_path / "back") == whole_outcome
    assert sum(line["rows_trained"] for line in whole_outcome["small"][0]) > 0


def test_both_nodes_learn_from_both_and_the_folders_tell_so(whole):
    for node in NAMES:
        for line in lines(whole, node, "metrics"):
            assert line["completions"] == 16
            assert set(line["sources"]) == set(NAMES)
            assert (line["absent"], line["heard"]) == ([], [NAMES[node == NAMES[0]]])
            for source in line["sources"].values():
                assert source["completions"] == 8
            own, other = line["sources"][node], line["sources"][NAMES[node == NAMES[0]]]
            if own["with_advantage"] and other["with_advantage"]:
                assert abs(own["log_ratio_mean"]) < 1e-4 < abs(other["log_ratio_mean"])
                assert own["effective_sample_size"] > 0.999 > other["effective_sample_size"]
        rounds = [line["round"] for line in lines(whole, node, "evaluation")]
        assert rounds == [0, 2, 4]
        last = lines(whole, node, "evaluation")[-1]
        assert {"validation", "out_of_distribution"} <= set(last)
        texts = lines(whole, node, "completions")
        assert len(texts) == 4 * 16
        assert {t["author"] for t in texts} == set(NAMES)


class StopsAt(Listener):
    """Presses Ctrl-C when a node has done so much of a phase of a round."""

    def __init__(self, round, phase, *, node=NAMES[0]):
        self.at, self.times, self.seen = (node, round, phase), 1, 0

    def round_done(self, node, report):
        self.seen = report.round + 1

    def phase(self, node, name, done, total):
        if (node, self.seen, name) == self.at and self.times:
            self.times -= 1
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    "round, phase, node",
    [(1, "write", NAMES[0]), (1, "learn", NAMES[1]), (2, "evaluate", NAMES[0])],
)
def test_ctrl_c_leaves_a_checkpoint_from_which_the_run_goes_on_to_the_same_end(
    recipe, whole_outcome, tmp_path, round, phase, node
):
    """When the second node learns, the first one has learned already."""
    result = run(recipe(), tmp_path / "cut", display=StopsAt(round, phase, node=node))
    assert result.interrupted
    assert result.rounds < 4
    if result.rounds:
        assert rounds_saved(tmp_path / "cut" / "small")[-1] == result.rounds
    assert not run(recipe(), tmp_path / "cut", resume=True).interrupted
    assert outcome(tmp_path / "cut") == whole_outcome


@pytest.fixture(scope="module")
def crashed(recipe, tmp_path_factory):
    """A function that copies a run of a checkpoint at 2 and a file of 2."""
    folder = tmp_path_factory.mktemp("crashed") / "run"
    crash(recipe(), folder, 2)
    return lambda place: shutil.copytree(folder, place / "run")


def test_after_a_crash_rounds_on_disk_are_not_written_again_and_the_end_is_the_same(
    recipe, crashed, whole_outcome, tmp_path, monkeypatch
):
    folder, written, display = crashed(tmp_path), [], Hears()
    write = Node.write
    hear = lambda self, round, *more: written.append(round) or write(self, round, *more)  # noqa: E731
    monkeypatch.setattr(Node, "write", hear)
    run(recipe(), folder, resume=True, display=display)
    assert display.said[0] == "going on after 2 rounds"
    assert written == [3, 3]
    assert outcome(folder) == whole_outcome
    asked = [line["problem"] for line in lines(folder, "small", "problems")]
    graded = (line["problem"] for line in lines(folder, "small", "completions"))
    assert asked == [*dict.fromkeys(graded)]


def test_a_damaged_round_file_is_written_anew(recipe, crashed, whole_outcome, tmp_path):
    folder = crashed(tmp_path)
    (folder / "small" / "rounds" / "000002.ptlk").write_bytes(b"PTLK")
    run(recipe(), folder, resume=True)
    assert outcome(folder) == whole_outcome


def test_a_finished_run_can_be_made_longer(recipe, whole_outcome, tmp_path):
    run(recipe("rounds=2"), tmp_path / "run")
    result = run(recipe(), tmp_path / "run", resume=True)
    assert result.rounds == 4
    assert outcome(tmp_path / "run") == whole_outcome


def test_a_damaged_checkpoint_is_named_with_the_way_out(recipe, crashed, tmp_path):
    folder = crashed(tmp_path)
    place = checkpoint.checkpoint_folder(folder / "small", 2)
    (place / "optimizer.safetensors").write_bytes(b"!")
    with pytest.raises(RunFolderError, match=r"optimizer.* is not what it was .*; put it back, or"):
        run(recipe(), folder, resume=True)


@pytest.mark.parametrize("change, words", [
    ("objective.weight_cap=3", r"made with objective.weight_cap = 2.0, .* = 3.0; resume"),
    ("rounds=1", "2 rounds, but the recipe ends after 1; raise"),
    ("stop_when.rounds=1", "2 rounds, but the recipe ends after 1; raise"),
])  # fmt: skip
def test_a_run_cannot_be_resumed_as_another_one_or_a_shorter_one(
    recipe, crashed, tmp_path, change, words
):
    with pytest.raises(RunFolderError, match=words):
        run(recipe(change), crashed(tmp_path), resume=True)


def test_a_reward_that_is_not_finite_stops_the_run_and_names_round_node_and_source(
    recipe, tmp_path, monkeypatch
):
    kind = type(make_task(recipe()))
    graded = kind.graded

    def broken(self, *given):
        rewards, parts = graded(self, *given)
        return [float("nan"), *rewards[1:]], parts

    monkeypatch.setattr(kind, "graded", broken)
    with pytest.raises(NonFiniteError, match=r"round 1, node 'large': the task's reward for compl"):
        run(recipe("evaluation.problems=0", "evaluation.out_of_distribution=0"), tmp_path / "run")


OF_ONE = [
    *("seed=5", "problems_per_round=3", "group_size=5", "task.width=5", "task.reward=task"),
    *("sampling.temperature=0.5", "sampling.top_k=2", "sampling.top_p=0.2"),
    *("sampling.max_new_tokens=3", "sampling.max_total_tokens=12"),
    *('sampling.stop=["1", "2", "3", "4"]', 'sampling.stop_texts=["1", "2", "3", "4"]'),
    *("node.small.optimizer=adamw", "node.small.learning_rate=1e-2"),
    *("node.small.warmup_updates=0.5", "node.small.adam_betas=[0.5, 0.9]"),
    *("node.small.gradient_clip_norm=1e-9", "node.small.dtype=bfloat16"),
    *("node.small.sampling_dtype=bfloat16", "node.small.sampling_rows=3"),
    "node.small.attention=eager",
]
"""Options that change what a node by itself learns or writes."""
OF_TWO = ["plan=horizontal", "node.large.weight=3", "swarm.codec=raw"]
OF_TASK = ["task.other_width=5", "out_of_distribution={name='digits', other_width=5}"]


def left_by_a_short_run(recipe, folder, names, *overrides):
    unasked = ("evaluation.problems=0", "evaluation.out_of_distribution=0")
    run(recipe("rounds=1", *unasked, *overrides, names=names), folder)
    sizes = [line["size_bytes"] for line in lines(folder, "small")]
    return left_by(folder, "small", 1)[:3], sizes


@pytest.fixture(scope="module")
def plain(recipe, tmp_path_factory):
    """What the unchanged recipe gives, by the nodes that it has."""
    folder = tmp_path_factory.mktemp("plain")
    found = {
        names: left_by_a_short_run(recipe, folder / f"{len(names)}", names)
        for names in (("small",), NAMES)
    }
    assert [line["completions"] for line in found["small",][0][0]] == [16]  # it writes all
    return found


@pytest.mark.parametrize("change", [*OF_ONE, *OF_TWO])
def test_every_option_changes_what_it_says(recipe, tmp_path, plain, change):
    names = ("small",) if change in OF_ONE else NAMES
    more = ["node.small.weight_decay=0.5"] * change.endswith("adamw")
    assert left_by_a_short_run(recipe, tmp_path / "run", names, change, *more) != plain[names]


@pytest.mark.parametrize("change", OF_TASK)
def test_an_option_of_other_problems_chooses_others(recipe, change):
    other, plain = (make_task(recipe(*more)) for more in ([change], []))
    assert other.ids("out-of-distribution") != plain.ids("out-of-distribution")
    assert other.ids("train") == plain.ids("train")


def test_a_round_file_with_a_foreign_nodes_unasked_or_unreadable_work_is_learned_without_it(
    recipe, tmp_path
):
    """What a peer may send and nobody wants: too much, ids from nowhere, too long."""
    crash(recipe("checkpoint_every=1"), tmp_path / "run", 1)

    def worse(completions):
        (one, two, three, *rest) = completions
        ids, long = one.token_T.copy(), np.full(50, 5, np.int32)
        ids[0] = 1_000_000
        stop = np.int32([tiny.STOP])
        three_T = np.int32([5, 6])  # short, so that it is not its length that is wrong
        lies = [  # a claim to have finished, a claim not to have, and words after the end
            np.concatenate([three_T, np.int32([5])]), np.concatenate([three_T, stop]),
            np.concatenate([stop, three_T, stop]),
        ]  # fmt: skip
        return [
            replace(one, token_T=ids),
            replace(two, token_T=long, logp_T=np.full(50, -1.0, np.float32)),
            replace(three, problem_id="digits/1+1"),
            replace(three, index=77),
            three,
            *(
                replace(c, token_T=lie, logp_T=np.full(len(lie), -1.0, np.float32), end=end)
                for c, lie, end in zip(rest, lies, ("stop", "length", "stop"), strict=False)
            ),
            *rest[3:],
        ]

    for node in NAMES:
        rewrite_round(tmp_path / "run", node, 1, "large", worse)
    run(recipe("rounds=2", "checkpoint_every=1"), tmp_path / "run", resume=True)
    for node in NAMES:
        line = lines(tmp_path / "run", node, "metrics")[1]
        # One group has a single completion left, which has nothing to be compared with.
        left = ("unusable", "unasked", "too_few", "completions")
        assert [line[key] for key in left] == [5, 2, 1, 10]


def test_a_completion_that_is_longer_than_its_prompt_leaves_room_for_is_left_out(recipe, tmp_path):
    """Shorter than the longest completion: but prompt and completion would not fit together."""
    changes = ("rounds=2", "checkpoint_every=1", "sampling.max_total_tokens=12")
    crash(recipe(*changes), tmp_path / "run", 1)

    def longer(completions):
        assert all(len(c.token_T) < 6 for c in completions)  # what was asked for
        token_T, logp_T = np.full(6, 5, np.int32), np.full(6, -1.0, np.float32)
        one, *rest = completions
        return [replace(one, token_T=token_T, logp_T=logp_T, end="length", text=None), *rest]

    rewrite_round(tmp_path / "run", "small", 1, "large", longer)
    run(recipe(*changes), tmp_path / "run", resume=True)
    line = lines(tmp_path / "run", "small", "metrics")[1]
    assert (line["unusable"], line["completions"]) == (1, 15)


def test_a_second_ctrl_c_stops_at_once(recipe, tmp_path):
    class Impatient(StopsAt):
        def phase(self, node, name, done, total):
            if name == "learn":
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(recipe(), tmp_path / "run", display=Impatient(0, "learn"))
    assert signal.getsignal(signal.SIGINT) is before


def test_threads_are_set_and_a_node_waits_for_the_others_as_long_as_the_recipe_says(
    recipe, tmp_path, monkeypatch
):
    seen, receive, before = set(), Participant.receive, torch.get_num_threads()
    hear = lambda self, *rest: seen.add(self.deadline_s) or receive(self, *rest)  # noqa: E731
    monkeypatch.setattr(Participant, "receive", hear)
    try:
        run(recipe("rounds=1", "threads=2", "deadline_s=3.5"), tmp_path / "run")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == {3.5}


def test_what_saves_memory_reaches_the_learner_and_leaves_the_loss_as_it_was(
    recipe, tmp_path, monkeypatch
):
    # Else passes over own parts would be counted, of which these have none.
    monkeypatch.setattr("potluck.model.inputs.WORTH_SHARING", -1.0)
    found, forwards = {}, []
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, inputs, output: (
            forwards.append(tuple(inputs[0].shape))
            if isinstance(module, torch.nn.Linear) and torch.is_grad_enabled() and inputs
            else None
        )
    )
    try:
        for option in ("optimizer=adam", "gradient_checkpointing=true", "micro_batch_tokens=1"):
            shorter = ("rounds=1", "evaluation.problems=0", "evaluation.out_of_distribution=0")
            config = recipe(*shorter, f"node.small.{option}", names=("small",))
            run(config, tmp_path / option)
            found[option] = len(forwards), lines(tmp_path / option, "small")[0]["loss"]
            forwards.clear()
    finally:
        hook.remove()
    (plain, loss), *others = found.values()
    for count, same in others:
        assert count > plain  # layers run again, or more and smaller batches
        assert same == pytest.approx(loss, abs=1e-6)


ELSEWHERE = {
    *("evaluation.every", "evaluation.problems", "evaluation.out_of_distribution"),
    *("evaluation.max_new_tokens", "evaluation.right", "pace"),
    *("keep_checkpoints", "keep_best", "stop_when.validation", "stop_when.no_better"),
    *("stop_when.rounds", "swarm.alone"),
    *("name", "control", "rounds", "checkpoint_every", "deadline_s", "threads", "intake", "shares"),
    *("node.device", "node.model", "node.stranger", "node.weight_decay", "node.lr_schedule"),
    *("node.gradient_checkpointing", "node.micro_batch_tokens", "node.chat_template_kwargs"),
    "node.chat_template",
    *("sampling.max_prompt_tokens", "task.train_problems"),
    *("node.lora.r", "node.lora.alpha", "node.lora.dropout", "node.lora.targets"),
    *("reward.function", "reward.weight", "reward.format"),
    *("log.to", "log.project", "log.group", "log.wandb_mode", "log.completions", "log.callback"),
    *("swarm.listen", "swarm.connect", "swarm.tls.folder", "swarm.key", "swarm.roster"),
    *("swarm.max_staleness", "swarm.cohort", "swarm.kept_rounds", "swarm.gather_s"),
    *("swarm.quarantine_s", "swarm.text", "swarm.transport", "swarm.open"),
    *("swarm.stranger_problems", "swarm.stranger_share", "swarm.strangers_share"),
    *("node.engine.url", "node.engine.model", "node.engine.folder", "node.engine.sleeps"),
    "node.engine.dtype",
    *("node.engine.concurrency", "node.engine.timeout_s", "node.engine.tolerance"),
    *("node.engine.api_key_variable", "node.engine.overlap", "node.engine.path"),
    *("node.engine.problem", "node.engine.solution", "node.engine.retries"),
    *("node.engine.budget_tokens", "node.engine.budget_usd"),
    *("node.engine.usd_per_million_prompt", "node.engine.usd_per_million_completion"),
    *("node.engine.usd_per_million_train", "node.engine.tokenizer"),
}
"""Options that tests of their own try, in this folder or in the room that reads them."""


STRANGE = ("swarm.open=true", "node.small.stranger=true", "rounds=1")


def shares_with_a_stranger(recipe, folder, *overrides):
    """Of the batch of each node: completions by author, and what was too much."""
    run(recipe(*STRANGE, *overrides), folder)
    metrics = {node: lines(folder, node, "metrics")[0] for node in NAMES}
    by_author = {
        node: {author: source["completions"] for author, source in line["sources"].items()}
        for node, line in metrics.items()
    }
    return by_author, {node: line["over_share"] for node, line in metrics.items()}


def test_a_stranger_writes_groups_of_its_own_and_has_a_bounded_part_of_a_batch(recipe, tmp_path):
    half = ("swarm.stranger_share=0.5", "swarm.strangers_share=0.5")
    more, over = shares_with_a_stranger(
        recipe, tmp_path / "more", *half, "swarm.stranger_problems=3"
    )
    assert more == {name: {"large": 16, "small": 12} for name in NAMES}
    assert over == {"small": 0, "large": 0}
    for at, (one, every) in enumerate(((0.25, 0.5), (0.5, 0.25))):
        caps = (f"swarm.stranger_share={one}", f"swarm.strangers_share={every}")
        capped, over = shares_with_a_stranger(recipe, tmp_path / f"{at}", *caps)
        assert capped["large"] == {"large": 16, "small": 4}  # 1/3 of 16 is one group
        assert capped["small"] == {"large": 16, "small": 8}  # to itself it is none
        assert over == {"small": 0, "large": 4}
    place = checkpoint.checkpoint_folder(tmp_path / "more" / "large", 1)
    card = (place / "README.md").read_text()
    assert "100%" in card
    assert "groups of its own" in card


def options_of(table, at=""):
    """Every key of a table and of the tables in it; of tasks those of digits."""
    for field in msgspec.structs.fields(table):
        kinds = [field.type, *get_args(field.type)]
        kinds += [part for kind in kinds for part in get_args(kind)]
        inner = [k for k in kinds if isinstance(k, type) and issubclass(k, msgspec.Struct)]
        if field.name == "out_of_distribution" and not at:
            inner = []
        if field.name == "task":
            inner = [DigitsOptions]
        if not inner:
            yield at + field.name
        for kind in inner:
            yield from options_of(kind, f"{at}{field.name}.")


def test_every_option_of_a_run_is_tried_in_this_file_or_elsewhere():
    """The objective's are tried in node/test_learner.py, those of other tasks in tasks/."""
    tried = {change.partition("=")[0] for change in (*OF_ONE, *OF_TWO, *OF_TASK)}
    tried = {key.replace("node.large", "node").replace("node.small", "node") for key in tried}
    in_tasks = ("task.name", "task.path", "objective.")
    options = {key for key in options_of(RunConfig) if not key.startswith(in_tasks)}
    assert options == tried | ELSEWHERE


def test_a_failure_of_the_last_evaluation_costs_nothing_learned(recipe, tmp_path, monkeypatch):
    real = launch_module.LocalRounds.evaluate

    def breaks(*args, at_end):
        if at_end:
            raise Crash
        return real(*args, at_end=at_end)

    monkeypatch.setattr(launch_module.LocalRounds, "evaluate", breaks)
    with pytest.raises(Crash):
        run(recipe("checkpoint_every=0", "rounds=1"), tmp_path / "run")
    assert rounds_saved(tmp_path / "run" / "small") == [1]


def test_partners_that_stop_at_different_tokens_are_refused_until_the_recipe_names_them(
    recipe, models, tmp_path
):
    other = tmp_path / "other"
    shutil.copytree(models["small"], other)
    path = other / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": [2, 5]}))
    changed = f"node.small.model={other}"
    refused = r"'small' end .* only one of them stops at 'c'"
    with pytest.raises(ModelError, match=refused):
        run(recipe(changed), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ModelError, match=refused):
        plan_cost(recipe(changed))
    run(recipe(changed, "sampling.stop=['c']", "rounds=1"), tmp_path / "run")
    # So what is asked of the model is true of its checkpoints.
    for place in (other, checkpoint.newest(str(tmp_path / "run" / "small"))):
        assert Reader.of(str(place)).stop_ids == LanguageModel.load(str(place)).stop_ids == {2, 5}


def test_partners_that_ask_with_different_prompts_are_refused_before_the_first_round(
    recipe, models, tmp_path
):
    other = tmp_path / "other"
    shutil.copytree(models["small"], other)
    path = other / "tokenizer_config.json"
    template = "{{ messages[-1]['content'] }}="
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    with pytest.raises(ModelError, match=r"'large' and 'small' ask '.*' with different prompts \("):
        run(recipe(f"node.small.model={other}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_node_that_has_nothing_to_write_is_not_missing_after_a_resume(recipe, models, tmp_path):
    def three(rounds):
        tree = as_tree(recipe(f"rounds={rounds}", "problems_per_round=2", "checkpoint_every=1"))
        tree["node"]["third"] = tree["node"]["small"]
        return from_tree(tree)

    crash(three(3), tmp_path / "run", 1)
    run(three(3), tmp_path / "run", resume=True)
    metrics = [m for n in (*NAMES, "third") for m in lines(tmp_path / "run", n, "metrics")]
    assert [m["missing"] for m in metrics] == [[]] * 9
    # Whose turn it is goes on from round to round, so everybody writes in some round.
    authors = {a for m in metrics for a in m["sources"]}
    assert authors == {*NAMES, "third"}


def test_checkpoints_of_rounds_that_are_lived_again_do_not_push_the_new_ones_out(recipe, tmp_path):
    config = recipe("checkpoint_every=1", "rounds=2")
    run(config, tmp_path / "run")
    shutil.rmtree(checkpoint.checkpoint_folder(tmp_path / "run" / "small", 2))
    crash(config, tmp_path / "run", 1, resume=True)
    assert rounds_saved(tmp_path / "run" / "large") == [1]


def test_a_resume_says_if_the_bits_cannot_be_the_same(recipe, whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    for place in folder.rglob("state.json"):
        place.write_text(json.dumps({**json.loads(place.read_text()), "torch": "1.0"}))
        (place.parent / "SHA256SUMS").unlink()
    (said,) = prepare_resume(folder, recipe(), 4)
    assert said.startswith("going on after 4 rounds; it was made with ")
    assert "'torch': '1.0'" in said
    assert said.endswith("not the same bits")


def test_every_round_node_and_purpose_has_a_seed_of_its_own(recipe, tmp_path, monkeypatch):
    seeds = []
    hear = lambda purpose: seeds.append(derived_seed(purpose)) or seeds[-1]  # noqa: E731
    monkeypatch.setattr("potluck.node.participant.derived_seed", hear)
    run(recipe("rounds=2"), tmp_path / "run")
    assert len(set(seeds)) == len(seeds) == 2 * 2 * 2


def test_evaluations_ask_the_first_problems_of_their_splits_within_a_limit_of_their_own(
    recipe, tmp_path, monkeypatch
):
    asked, room = [], set()
    write = HFEngine.generate

    def hear(self, requests, draw, *, author, progress):
        asked.append((author, [request.problem.id for request in requests]))
        longest = self.settings.longest(self.policy.context)
        room.add((author == "evaluation", self.settings.max_new_tokens, longest))
        return write(self, requests, draw, author=author, progress=progress)

    monkeypatch.setattr(HFEngine, "generate", hear)
    asks = "evaluation={every=1, problems=3, out_of_distribution=5, max_new_tokens=40}"
    run(recipe("rounds=2", asks), tmp_path / "run")
    assert room == {(False, 6, 32), (True, 40, 64)}  # 64: the positions that the model has
    task = make_task(recipe())
    validation, other = task.ids("validation")[:3], task.ids("out-of-distribution")[:5]
    graded = [ids for author, ids in asked if author == "evaluation"]
    assert graded == [validation] * 4 + [validation, other] * 2  # twice each, and at the end
    trained = {id for author, ids in asked if author != "evaluation" for id in ids}
    assert trained
    assert not trained & {*validation, *other}


def test_a_full_disk_is_a_line_and_the_checkpoint_stands(recipe, crashed, tmp_path, monkeypatch):
    folder = crashed(tmp_path)

    def full(*_, **__):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(RunFolderError, match=r"cannot write checkpoint .*No space left .*--resume"):
        run(recipe(), folder, resume=True)
    assert [p.name for p in (folder / "large" / "checkpoints").iterdir()] == ["000002"]


def test_a_scheduler_that_wants_its_machine_back_finds_a_checkpoint(recipe, tmp_path):
    class Terminated(StopsAt):
        def round_done(self, node, report):
            os.kill(os.getpid(), signal.SIGTERM) if report.round == 1 and self.times else None
            self.times = 0 if report.round == 1 else self.times

    before = signal.getsignal(signal.SIGTERM)
    result = run(recipe("checkpoint_every=0"), tmp_path / "run", display=Terminated(9, "none"))
    assert (result.interrupted, result.rounds) == (True, 2)
    assert rounds_saved(tmp_path / "run" / "small") == [2]
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_card_of_the_last_checkpoint_tells_of_the_last_evaluation(whole):
    for node in NAMES:
        last = lines(whole, node, "evaluation")[-1]
        place = checkpoint.checkpoint_folder(whole / node, 4)
        card = (place / "README.md").read_text()
        assert f"validation: {last['validation']:.4f} (greedy answers to 4 problems" in card
        assert f"out of distribution (digits): {last['out_of_distribution']:.4f}" in card
