"""Nouns for tests, with whatever a test does not care about filled in."""

import hashlib
from dataclasses import replace

import numpy as np

from potluck.exchange import Agreement, Limits, Provenance
from potluck.types import Completion, Group, Row, Sampling


def completion(tokens=(1, 2), logprobs=None, *, problem="p", author="north", index=0, end="stop"):
    """Where a test names no log-probabilities, they are -0.5 and -0.25 in turn."""
    if logprobs is None:
        logprobs = [(-0.5, -0.25)[i % 2] for i in range(len(tokens))]
    token_T, logp_T = np.array(tokens, np.int32), np.array(logprobs, np.float32)
    return Completion(problem, author, index, token_T, logp_T, end)


def collect(node, round, *, deadline_s, **waiting):
    """Receive a round, and finish it with all that came."""
    return node.finish(round, node.receive(round, wait_s=deadline_s, **waiting))


def episode(*turns, text=None, end="stop", **more):
    """A completion of several turns, each given as its tokens; what was observed is numbered."""
    made = completion([id for turn in turns for id in turn], **more)
    observed = bytes(at % 256 for at in range(2 * (len(turns) - 1)))
    return replace(made, turns=tuple(map(len, turns)), observed=observed, text=text, end=end)


def text_only(text, *, problem="p", author="north", index=0, end="stop"):
    """A completion of an author without a tokenizer."""
    return Completion(problem, author, index, np.zeros(0, np.int32), None, end, text)


def origin(*, model=b"m", tokenizer=b"t", task=b"k", temperature=1.0, top_k=0, top_p=1.0):
    """An empty tokenizer stays empty: there is none."""
    names = [part and part.ljust(16, b".") for part in (model, tokenizer, task)]
    return Provenance(*names, Sampling(temperature, top_k, top_p))


def prompt_digest(problem_id):
    """What a node makes of any problem but those of "nowhere"."""
    if problem_id.startswith("nowhere"):
        return None
    return hashlib.sha256(problem_id.encode()).digest()[:8]


GENEROUS = Limits()


def terms(node="north", *, run="run", limits=GENEROUS, digest=prompt_digest, asked=None, **changes):
    """A node's agreement; ``digest`` is that of its prompts' ids, ``asked`` of their messages."""
    made = origin(**changes)

    def question_digest(problem_id):
        return (own := digest(problem_id)) and own[::-1]

    def own_digest(problem_id):
        own = digest(problem_id)
        return own if made.tokenizer else own and b""

    return Agreement(run, node, made, limits, own_digest, asked or question_digest)


def group(problem, completions, rewards, policy):
    """The completions as ``policy`` reads them, whatever they hold."""
    prompt_P = policy.prompt(problem)
    rows = (Row(c, prompt_P, c.token_T, policy.text(c.token_T)) for c in completions)
    return Group(problem, tuple(rows), tuple(rewards))
