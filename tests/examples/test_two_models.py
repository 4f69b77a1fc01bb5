"""The file to copy: on the same completions it learns what the package learns."""

import ast
import copy
import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast

from nouns import completion, group
from potluck.model import LanguageModel
from potluck.node.learning.batch import pack
from potluck.node.learning.learner import Learner
from potluck.objective.advantages import group_advantages
from potluck.objective.losses import no_is_loss
from potluck.objective.methods import METHODS, ObjectiveConfig
from potluck.types import Problem

FILE = Path(__file__).parents[2] / "examples" / "two_models.py"

WRITTEN = {  # by the learner, by its partner
    "47+8=": (["55\n", "5\n"], ["55\n", "65432"]),
    "90-5=": (["58", "\n"], ["58\n", "9\n"]),  # a right result without its stop is cut off
    "99+9=": (["801\n", "801\n"], ["801\n", "801\n"]),  # nothing to learn
    "10-1=": (["1\n", "90\n"], ["9\n", "01"]),
    "23+4=": (["72\n", "1-+=7"], ["7\n", "2"]),
}


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("two_models", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def policy_of(example, network):
    """The same network under the package, with a token for each character."""
    vocabulary = {character: id for id, character in enumerate(example.ALPHABET)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="="))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=example.STOP, pad_token=example.STOP
    )
    return LanguageModel(network, tokenizer)


def sharp_model(example, kind):
    """Random weights, with opinions: some completions are far likelier than others."""
    torch.manual_seed(7)
    network = example.make_models()[kind]
    with torch.no_grad():
        network.lm_head.weight.mul_(6)
    return network


@pytest.mark.parametrize(
    "kind, alone, exponent",
    [("adder", False, 1.0), ("subtracter", False, 3.0), ("adder", True, 1.0)],
)
def test_a_round_moves_a_model_as_the_package_moves_it(example, monkeypatch, kind, alone, exponent):
    monkeypatch.setattr(example, "EXPONENT", exponent)
    network = sharp_model(example, kind)
    policy = policy_of(example, copy.deepcopy(network))
    ours, theirs = [], []
    for question, (own, partners) in WRITTEN.items():
        texts = [(kind, text) for text in own]
        texts += [("partner", text) for text in partners * (not alone)]
        ours.append([example.Completion(author, question, text) for author, text in texts])
        completions = [
            completion(example.ids(text), problem=question, author=author, index=index)
            for index, (author, text) in enumerate(texts)
        ]
        rewards = [example.reward(each) for each in ours[-1]]
        theirs.append(group(Problem(question, question, ""), completions, rewards, policy))
    lws = METHODS["lws"].fields | {"weight": "likelihood", "likelihood_exponent": exponent}
    learner = Learner(
        name=kind, policy=policy, objective=ObjectiveConfig(**lws),
        optimizer=torch.optim.SGD(policy.network.parameters(), lr=1.0),
        temperature=1.0, gradient_clip_norm=1.0, micro_batch_tokens=60,
    )  # fmt: skip
    batch = pack(theirs)
    assert {-1.0, 0.0, 1.0} <= {*batch.advantage_B.sign().tolist()}
    gradient = learner.gradient(learner.score(batch))

    loss = example.lws_loss(network, kind, ours)
    loss.backward()
    assert_close(loss.item(), gradient.loss, rtol=0, atol=1e-6)
    for parameter, tensor in zip(network.parameters(), gradient.tensors, strict=True):
        assert_close(parameter.grad, tensor, rtol=1e-5, atol=1e-6)

    assert gradient.norm > 1.0  # so the step is clipped
    learner.learn(batch, lambda done, total: None)
    loss = example.lws_loss(network, kind, ours)
    example.step(network, torch.optim.SGD(network.parameters(), lr=1.0), loss)
    for one, other in zip(network.parameters(), policy.network.parameters(), strict=True):
        assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_advantages_are_the_packages_and_groups_without_one_make_no_step(example):
    for rewards in [1, 0, 0, 1], [0, 0], [0.3] * 12, [0.1, 0.7, 0.2], [1]:
        reward_G = torch.tensor(rewards, dtype=torch.float32)
        assert torch.equal(example.advantages(reward_G), group_advantages(reward_G))
    right = [example.Completion(author, "47+8=", "55\n") for author in ("adder", "partner")]
    assert example.lws_loss(sharp_model(example, "adder"), "adder", [right]) is None


def test_the_clip_acts_as_the_packages_once_a_model_has_moved(example):
    generator = torch.Generator().manual_seed(0)
    logp_BT = -3 * torch.rand(40, 5, generator=generator)
    start_BT = logp_BT + 0.4 * torch.randn(40, 5, generator=generator)
    advantage_B = torch.randn(40, generator=generator)
    mask_BT = torch.arange(5) < torch.randint(1, 6, (40, 1), generator=generator)
    ours_BT, theirs_BT = logp_BT.clone().requires_grad_(), logp_BT.clone().requires_grad_()
    ours = example.losses(ours_BT, start_BT, advantage_B, mask_BT).mean()
    options = ObjectiveConfig(**METHODS["lws"].fields, weight="likelihood")
    theirs = no_is_loss(theirs_BT, start_BT, start_BT, advantage_B, mask_BT, options)
    ours.backward()
    theirs.backward()
    assert_close(ours, theirs, rtol=0, atol=1e-6)
    assert_close(ours_BT.grad, theirs_BT.grad, rtol=0, atol=1e-6)


def test_texts_behind_questions_of_unlike_lengths_are_read_as_the_package_reads_them(example):
    network = sharp_model(example, "adder")
    questions, texts = ["4+1=", "47+8=", "="], ["5\n", "201", "\n"]
    logp_BT, mask_BT = example.read(network, questions, texts)
    policy = policy_of(example, network)
    arrays = [completion(example.ids(text)).token_T for text in texts]
    prompts = [policy.prompt(Problem(question, question, "")) for question in questions]
    assert_close(logp_BT, policy.logp(prompts, arrays, temperature=1.0), rtol=0, atol=1e-6)
    assert mask_BT.sum(dim=1).tolist() == [2, 3, 1]


def run(example, monkeypatch, capsys, *arguments):
    """(printed text, the authors of each group that was learned from) of two short rounds."""
    learned, lws_loss = [], example.lws_loss

    def recorded(model, me, groups):
        learned.extend((me, [each.author for each in group]) for group in groups)
        for each in (each for written in groups for each in written):  # ended, or cut off
            assert each.text.find("\n") in (-1, len(each.text) - 1)
            assert len(each.text) == example.LONGEST or each.text.endswith("\n")
        return lws_loss(model, me, groups)

    for name, value in {"PROBLEMS": 3, "LESSONS": 4, "ENOUGH": 0, "lws_loss": recorded}.items():
        monkeypatch.setattr(example, name, value)
    example.main(["--rounds", "2", *arguments])
    monkeypatch.undo()
    return capsys.readouterr().out, learned


def test_a_short_run_prints_what_each_model_earned(example, monkeypatch, capsys):
    printed, learned = run(example, monkeypatch, capsys, "--seed", "3")
    rounds = [line for line in printed.splitlines() if line.startswith("round")]
    assert [line.split()[1] for line in rounds] == ["1", "2"]
    for line in rounds:
        values = [float(each) for each in re.findall(r"\d\.\d\d", line)]
        assert len(values) == 6
        assert 0 <= min(values) <= max(values) <= 1
    assert [me for me, _ in learned] == (["adder"] * 3 + ["subtracter"] * 3) * 2
    assert all(authors == ["adder"] * 4 + ["subtracter"] * 4 for _, authors in learned)

    again, _ = run(example, monkeypatch, capsys, "--seed", "3")
    assert [line for line in again.splitlines() if line.startswith("round")] == rounds


@pytest.mark.parametrize("words, count", [(["--alone"], 4), (["--alone", "8"], 8)])
def test_alone_a_model_learns_from_its_own_only(example, monkeypatch, capsys, words, count):
    _, learned = run(example, monkeypatch, capsys, *words)
    assert all(authors == [me] * count for me, authors in learned)
    assert {me for me, _ in learned} == {"adder", "subtracter"}


def test_the_file_needs_no_more_than_torch_and_transformers():
    text = FILE.read_text()
    assert len(text.splitlines()) <= 250
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.split(".")[0])
    assert names - sys.stdlib_module_names == {"torch", "transformers"}
