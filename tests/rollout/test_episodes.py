"""Episodes: what bounds them, and that a cache kept over turns is that of a forward pass."""

import re
import threading

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import tiny
from episodes import Here, Walk
from potluck.episode import Turn, digest_of, turns_in
from potluck.model import LanguageModel, ModelError
from potluck.rollout import cache, episodes, hf
from potluck.rollout.base import EngineSettings, GreedySampler, RolloutError
from potluck.rollout.hf import HFEngine
from rollout.writing import PROBLEMS, no_progress, problem_of, sampled, write

STOPS = ["a", "b", "c", "d", "e", "f"]


def policy(sharpness=1.0, network=None):
    """A model with several stop tokens: turns of about six tokens, of unlike lengths."""
    network = network or tiny.policy(sharpness=sharpness).network
    return LanguageModel(network, tiny.tokenizer(), stop=STOPS)


def engine_of(model, environment, *, max_new_tokens=24, max_total_tokens=60, **options):
    limits = max_new_tokens, max_total_tokens
    return HFEngine(model, EngineSettings(*limits, environment=environment, **options))


def play(model, environment, sampler=None, count=6, *, progress=no_progress, **options):
    return write(engine_of(model, environment, **options), sampler, count, progress=progress)


def read_by(model, completion, game=Walk):
    """The ids that the model reads, and of each whether it was sampled: the game played again."""
    one, at = game(), 0
    one.reset(problem_of(completion))
    ids, sampled = model.prompt(problem_of(completion)).tolist(), []
    sampled = [False] * len(ids)
    for number, length in enumerate(completion.turns):
        turn = completion.token_T[at : at + length].tolist()
        ids, sampled, at = ids + turn, sampled + [True] * length, at + length
        if number < len(completion.turns) - 1:
            said, _, done = one.step(model.text(np.array(turn[:-1])))
            assert not done
            heard = model.tokenizer(said, add_special_tokens=False)["input_ids"]
            ids, sampled = ids + heard, sampled + [False] * len(heard)
    return ids, sampled


def scored(model, completion):
    """logp_T by one pass over all that it read, straight from the network's logits."""
    ids, sampled = read_by(model, completion)
    with torch.no_grad():
        logits = model.network(input_ids=torch.tensor([ids])).logits[0, :, : tiny.VOCABULARY]
    every = torch.log_softmax(logits.float(), dim=1)[:-1]
    each = every.gather(1, torch.tensor(ids)[1:, None])[:, 0]
    return each[torch.tensor(sampled)[1:]].numpy()


@pytest.mark.parametrize(
    "spare, resume_at, rows", [(0.25, 0.25, 7), (-1.0, 0.0, 512), (9.0, 0.6, 512)]
)
def test_captured_log_probabilities_are_those_of_one_pass_over_prompt_turns_and_observations(
    monkeypatch, spare, resume_at, rows
):
    monkeypatch.setattr(cache, "SPARE", spare)
    monkeypatch.setattr(hf, "RESUME_AT", resume_at)
    model, seen = policy(), []
    written = play(model, Here(), rows=rows, progress=lambda *pair: seen.append(pair))
    assert [(c.problem_id, c.index) for c in written] == [
        (p.id, i) for p in PROBLEMS for i in range(6)
    ]
    assert seen[-1] == (24, 24)
    assert seen == sorted(seen)
    for c in written:
        np.testing.assert_allclose(c.logp_T, scored(model, c), atol=1e-5)
    assert {c.end for c in written} >= {"stop", "length"}
    assert len({len(c.turns) for c in written}) > 3
    assert len({length for c in written for length in c.turns}) > 5


@pytest.mark.parametrize("config", tiny.ARCHITECTURES, ids=lambda config: config.model_type)
def test_any_architecture_plays_as_its_own_forward_pass_says_or_is_refused(config):
    torch.manual_seed(0)
    model = policy(network=AutoModelForCausalLM.from_config(config))
    if config.model_type in ("mistral", "gemma2"):
        with pytest.raises(ModelError, match="window shorter than 2 x max_total_tokens = 120"):
            play(model, Here())
        config.sliding_window = 120
        model = policy(network=AutoModelForCausalLM.from_config(config))
    for c in play(model, Here(), count=3):
        np.testing.assert_allclose(c.logp_T, scored(model, c), atol=2e-5)


def test_an_episode_says_what_its_turns_were_how_it_ended_and_what_was_observed():
    model, environment = policy(), Here(max_turns=3)
    written = play(model, environment, count=30, max_new_tokens=16, max_total_tokens=34)
    assert {c.end for c in written} == {"stop", "length", "turns", "room"}
    for c in written:
        turns, ids = turns_in(c.text), np.split(c.token_T, np.cumsum(c.turns)[:-1])
        said = [token_T[: len(token_T) - (token_T[-1] in model.stop_ids)] for token_T in ids]
        assert turns == tuple(Turn(model.text(token_T)) for token_T in said)
        acted = turns[: len(turns) - (c.end == "length")]
        episode = environment.played[c.problem_id, episodes.text_of(acted)]
        said = episode.observations[: len(turns) - 1]
        assert c.observed == b"".join(map(digest_of, said))
        assert episode.done == (c.end == "stop")
        stops = [token_T[-1] in model.stop_ids for token_T in ids]
        assert stops == [True] * (len(ids) - 1) + [c.end != "length"]
        read = len(read_by(model, c)[0])
        assert len(c.token_T) <= 16
        assert read <= 34
        if c.end == "length":
            assert len(c.token_T) == 16 or read == 34
        if c.end == "turns":
            assert len(turns) == 3
        if c.end == "room":
            last = episode.observations[-1][0].content
            assert len(c.token_T) == 16 or read + len(last) + 1 > 34
    assert all(play.closed for play in environment.opened)


def test_the_same_is_written_whatever_is_written_at_once_and_with_the_same_seed():
    model = policy(sharpness=5)
    apart, together = (play(model, Here(), GreedySampler(), 1, rows=rows) for rows in (1, 512))
    assert [(c.token_T.tolist(), c.turns, c.text) for c in apart] == [
        (c.token_T.tolist(), c.turns, c.text) for c in together
    ]
    first, again, other = (play(model, Here(), sampled(seed), 2) for seed in (1, 1, 2))
    assert first == again != other


def test_a_slow_episode_holds_up_no_other(monkeypatch):
    """Its answer comes when all others are over, and is waited for once."""
    monkeypatch.setattr(episodes, "PATIENCE_S", 0.01)
    environment, finished = Here(), []
    environment.holds["p2"] = threading.Event()

    def progress(done, total):
        finished.append(done)
        if done >= 18:
            environment.holds["p2"].set()

    written = play(policy(), environment, progress=progress)
    assert len(written) == 24
    assert max(len(c.turns) for c in written if c.problem_id == "p2") > 1
    model = policy()
    for c in written:
        np.testing.assert_allclose(c.logp_T, scored(model, c), atol=1e-5)


def test_a_failed_episode_is_left_out_and_one_that_cannot_begin_stops_the_writing():
    environment = Here(fails={"p1": 2})
    told = []
    written = play(policy(), environment, notify=told.append)
    assert re.fullmatch(r"me: \d+ of 24 episodes are left out, as their .* than 5 s", *told)
    whole = play(policy(), Here())
    left = {(c.problem_id, c.index) for c in whole} - {(c.problem_id, c.index) for c in written}
    assert {id for id, _ in left} == {"p1"}
    assert all(len(c.turns) == 1 for c in written if c.problem_id == "p1")
    with pytest.raises(RolloutError, match="no episode of 'p3' can begin: the game of p3 raised"):
        play(policy(), Here(fails={"p3": 0}))


def test_columns_are_as_many_as_the_longest_row_has_tokens_and_a_share(monkeypatch):
    """Counted in every pass; without moving together there are more."""
    wide, model = {}, policy()
    for spare in (0.25, 9.0):
        monkeypatch.setattr(cache, "SPARE", spare)
        seen = wide[spare] = []
        hook = model.network.register_forward_pre_hook(
            lambda module, args, kwargs, seen=seen: seen.append(kwargs["attention_mask"].shape[1]),
            with_kwargs=True,
        )
        play(model, Here(), count=20, max_new_tokens=40)
        hook.remove()
    assert max(wide[0.25]) <= 60 * 1.25
    assert max(wide[0.25]) < max(wide[9.0])
