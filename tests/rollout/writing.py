"""What tests of engines share: four prompts, a sampler, and log-probabilities by a forward pass."""

import torch

import tiny
from potluck.rollout.base import RandomSampler, RolloutRequest
from potluck.types import Problem, Sampling

PROBLEMS = [Problem(f"p{i}", "1+2=3+4=5+6="[: 2 + 3 * i], "?") for i in range(4)]
"""Prompts of four lengths."""


def problem_of(completion):
    return next(p for p in PROBLEMS if p.id == completion.problem_id)


def sampled(seed=0, temperature=1.0, top_k=0, top_p=1.0):
    return RandomSampler(torch.Generator().manual_seed(seed), Sampling(temperature, top_k, top_p))


def no_progress(done, total):
    pass


def write(engine, sampler=None, count=3, *, requests=None, progress=no_progress):
    requests = requests or [RolloutRequest(problem, count) for problem in PROBLEMS]
    return engine.generate(requests, sampler or sampled(), author="me", progress=progress)


def logits_of(policy, completion):
    """logits_TV of each token that was written, straight from the network."""
    prompt = policy.prompt(problem_of(completion))
    ids = torch.tensor([[*prompt, *completion.token_T]])
    with torch.no_grad():
        logits = policy.network(input_ids=ids).logits[0, :, : tiny.VOCABULARY]
    return logits[len(prompt) - 1 : -1].float()


def of_tokens(logp_TV, completion):
    return logp_TV.gather(1, torch.tensor(completion.token_T).long()[:, None])[:, 0].numpy()


def forward(policy, completion, temperature=1.0):
    """logp_T by a forward pass of this completion alone."""
    logp_TV = (logits_of(policy, completion) / temperature).log_softmax(dim=1)
    return of_tokens(logp_TV, completion)
