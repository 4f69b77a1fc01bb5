"""What breaks a run off, and what reads or rewrites the files that a node leaves."""

import json
from dataclasses import replace

import pytest

import tiny
from displays import Listener
from potluck.exchange import Round, decode, decode_round, encode, encode_round
from potluck.launch.in_process import run
from potluck.node.storage.checkpoint import checkpoint_folder


def recipes(*always, names=("large", "small"), **tables):
    """A fixture: it makes recipes of tiny models, with these overrides and further ones."""

    @pytest.fixture(scope="module")
    def recipe(tiny_models):
        def make(*overrides, names=names):
            nodes = {name: tiny_models[name] for name in names}
            return tiny.recipe(nodes, *always, *overrides, **tables)

        return make

    return recipe


class Crash(Exception):
    """End of a process, in a test."""


class CrashesAfter(Listener):
    """Dies when the first node has learned from this round: nothing gets to clean up."""

    def __init__(self, round):
        self.round = round

    def round_done(self, node, report):
        if report.round == self.round:
            raise Crash


def crash(config, folder, round=0, *, resume=False, trust_code=False):
    """Run until the first node has learned from this round."""
    with pytest.raises(Crash):
        run(config, folder, resume=resume, display=CrashesAfter(round), trust_code=trust_code)


class Hears(Listener):
    """Keeps what the user is told, may act on it, and keeps what else is shown but waiting."""

    def __init__(self, act=lambda text: None):
        self.said, self.phases, self.rounds, self.evaluations = [], [], [], []
        self.act = act

    def phase(self, node, name, done, total):
        if name != "wait":
            self.phases.append((node, name, done, total))

    def round_done(self, node, report):
        self.rounds.append((node, report.round))

    def evaluated(self, node, report):
        self.evaluations.append((node, report.validation))

    def say(self, text):
        self.said.append(text)
        self.act(text)


def sets(*overrides):
    """The words of a command that change the recipe so."""
    return [word for override in overrides for word in ("--set", override)]


def everything_in(folder):
    return {p: p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def lines(folder, node, name="metrics"):
    """The lines of a file that the node has left."""
    text = (folder / node / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def numbers(folder, node):
    """Its metrics, seconds aside: they differ from run to run."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines(folder, node)]


def left_by(folder, name, rounds):
    """Numbers, completions, weights and card, seconds and bytes of the seal aside."""
    aside = ("seconds", "sent_bytes", "sent_bytes_per_token", "received_bytes", "size_bytes")
    place = checkpoint_folder(folder / name, rounds)
    return (
        [{k: v for k, v in line.items() if k not in aside} for line in lines(folder, name)],
        (folder / name / "completions.jsonl").read_text(),
        (place / "model.safetensors").read_bytes(),
        (place / "README.md").read_text(),
    )


def kept_round(folder, node, round):
    """The messages that the node learned from in a round."""
    data = (folder / node / "rounds" / f"{round:06d}.ptlk").read_bytes()
    return decode_round(data, run="tiny", round=round, node=node)


def rewrite_round(folder, node, round, author, change):
    """Replace the completions of ``author`` in the file of a round by ``change`` of them."""
    messages = [*map(decode, kept_round(folder, node, round).messages)]
    for at, message in enumerate(messages):
        if message.sender == author:
            completions = tuple(change(message.completions))
            ids = {c.problem_id for c in completions}
            prompts = {id: message.prompts.get(id, bytes(8)) for id in ids}
            messages[at] = replace(message, completions=completions, prompts=prompts)
    arrived = Round((), messages=tuple(map(encode, messages)))
    file = folder / node / "rounds" / f"{round:06d}.ptlk"
    file.write_bytes(encode_round(round, node, arrived))
