# %% [markdown]
# # Two models learn from each other
#
# Two tiny language models train together on sums, with a reward that a cell defines; then a run
# without sharing tells what the sharing gave. A minute on two CPU cores, no GPU, no network:
# `pip install -e . pandas` in a clone.
#
# This notebook is made from `notebook.py` by `scripts/make_notebook.py`.

# %%
import potluck

# %% [markdown]
# ## A reward
#
# A function with TRL's signature: it gets lists, with one entry for each completion, and the
# columns that it names. A completion such as `4+8+0=12;3+5+1=9;7+2+0=9#992` ends with the sum.


# %%
def right(completions, answer, **columns):
    return [
        float(text.endswith(f"#{gold}")) for text, gold in zip(completions, answer, strict=True)
    ]


def brief(completions, **columns):
    return [-len(text) / 100 for text in completions]


# %% [markdown]
# ## A run
#
# The recipe is a dict here; it may also be a file's path. In each round both models write half of
# the completions of each problem. Each learns from its own, and from the other's right ones as far
# as it finds them likely. The curve grows while the run goes on.

# %%
recipe = {
    "name": "together",
    "rounds": 12,
    "problems_per_round": 12,
    "group_size": 8,
    "threads": 1,
    "task": {"name": "digits"},
    "sampling": {"max_new_tokens": 48, "max_total_tokens": 96},
    "evaluation": {"every": 0, "problems": 40, "out_of_distribution": 0},
    "node": {
        "small": {"model": "builtin:digits-small", "learning_rate": 2e-4},
        "large": {"model": "builtin:digits-large", "learning_rate": 2e-4},
    },
}
together = potluck.run(recipe, rewards=[right, (brief, 0.1)])

# %% [markdown]
# ## What came of it
#
# A run shows the head of what `potluck show` prints, and its numbers are a data frame. (The command
# that is printed makes a control; it needs the rewards in a file, not in a notebook.)

# %%
together

# %%
frame = together.frame()
columns = ["node", "round", "reward/own", "rewards/right/mean", "rewards/brief/mean"]
frame[columns].groupby("node").tail(3)

# %% [markdown]
# ## Did the other model help?
#
# A run by itself cannot tell. In this one each model writes the same, and learns from its own
# completions only. It runs in the background: a cell can look, or stop it with `apart.stop()`.

# %%
nothing = {"importance": "none", "filter": False, "others": "none"}
alone = {**recipe, "name": "apart", "objective": nothing}
apart = potluck.run(alone, rewards=[right, (brief, 0.1)], background=True, display=None)

# %%
apart.result().plot()

# %% [markdown]
# This is one seed of 12 rounds, and another may differ by more than the interval, which is over
# problems. `potluck.compare` takes several runs on each side, one for each seed.

# %%
runs = [together.folder], [apart.result().folder]
compared = potluck.compare(*runs)
compared

# %%
compared.plot()
