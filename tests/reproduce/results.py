"""Results of cells that were never run."""

import msgspec

from potluck.reproduce.result import CellResult, NodeResult, code_digests
from potluck.reproduce.work.collect import base_digest

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


def result_of(cell, *, cpu_s=60.0, code=None, base=None):
    """The file of a cell as it is now; ``code`` replaces digests of it, ``base`` that of its
    models."""
    result = CellResult(
        scale=cell.scale,
        family=cell.family,
        models=cell.models,
        setting=cell.setting,
        seed=cell.seed,
        recipe=cell.digest,
        code={**code_digests(), **(code or {})},
        machine="Linux",
        torch="2",
        cpu_s=cpu_s,
        node={
            name: msgspec.structs.replace(NODE, base=base or base_digest(node.model))
            for name, node in cell.config.node.items()
        },
    )
    return msgspec.json.encode(result)
