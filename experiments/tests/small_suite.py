"""A suite as small as one can be: two models that ship with the package, one or two rounds."""

import msgspec

from potluck_experiments.cell_files import CellResult, NodeResult, add_results, cell_file
from potluck_experiments.origin import base_digest
from potluck_experiments.suite import SCALES, read_suite

SETTINGS = """
[f-tis]
title = "F-TIS"

[nois]
title = "NoIS"
set = ["objective.importance=none", "objective.filter=false", "objective.others=all"]

[alone]
title = "alone"
alone = true

[half]
title = "half"
alone = true
problems = 0.5
"""

SCALE = """
seeds = 2
[family.digits]
title = "adding"
model = { small = "recipe.toml#small", large = "recipe.toml#large", twin = "recipe.toml#small" }
pair = { size = ["small", "large"], same = ["small", "twin"] }
"""

RECIPE = """
name = "small"
rounds = 2
problems_per_round = 2
group_size = 2
plan = "vertical"
threads = 1
[sampling]
max_new_tokens = 6
max_total_tokens = 64
[evaluation]
every = 1
problems = 2
out_of_distribution = 2
[node.small]
model = "builtin:digits-small"
device = "cpu"
[node.large]
model = "builtin:digits-terse"
device = "cpu"
"""

EXPERIMENT = """
title = "Two sizes"
figure = "4"
settings = ["f-tis", "alone"]
pairs = { tiny = ["digits.size"] }
"""

OTHER = """
title = "The same model twice"
figure = ""
settings = ["f-tis", "alone"]
pairs = { tiny = ["digits.same"] }
"""

EXPECTED = """
[[claim]]
id = "ends"
text = "ends above alone"
setting = "f-tis"
than = "alone"
lies = "above"
"""


def make_suite(folder, *, recipe=RECIPE, scale=SCALE, settings=SETTINGS, others=None):
    """Writes the files below ``folder``/experiments, and reads them."""
    place = folder / "experiments"
    files = {
        **{f"{name}.toml": scale for name in SCALES},
        "settings.toml": settings,
        "recipe.toml": recipe,
        "fig04_size/experiment.toml": EXPERIMENT,
        "fig04_size/expected.toml": EXPECTED,
        "fig13_same/experiment.toml": OTHER,
        "fig13_same/expected.toml": EXPECTED,
        **(others or {}),
    }
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return read_suite(place)


NODE = NodeResult(
    eval_rounds=(0, 1, 2),
    greedy=(0.25, 0.5, 0.75),
    out_of_distribution=0.125,
    sampled=(0.5, 0.625),
    tokens=(100, 90),
    seconds=(1.0, 1.5),
    filtered_share=(0.0, 0.25),
    base="0123456789abcdef",
)


def result_of(cell, *, cpu_s=60.0, base=None, **changes):
    """The line of a cell as if it had been run; ``base`` replaces the digest of its models."""
    digests = {name: base or base_digest(node.model) for name, node in cell.config.node.items()}
    result = CellResult(
        scale=cell.scale, family=cell.family, models=cell.models, setting=cell.setting,
        seed=cell.seed, recipe=cell.digest, machine="Linux", torch="2", cpu_s=cpu_s,
        node={name: msgspec.structs.replace(NODE, base=its) for name, its in digests.items()},
        **changes,
    )  # fmt: skip
    return msgspec.json.encode(result)


def finish(suite, cell, **changes):
    add_results(cell_file(suite.folder, cell.scale, cell.family), [result_of(cell, **changes)])
