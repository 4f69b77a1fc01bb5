"""The README.md of a checkpoint: what it is and where it comes from, as the Hub shows it.

``card.md.j2`` has the text. Nothing is claimed that the run does not know: no licence, no
data set that is only a folder here. Of local folders only the last part of the path is told,
since cards are published.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from jinja2 import StrictUndefined, Template

from potluck.config import RunConfig
from potluck.objective.methods import method_of
from potluck.reports.answers import answers, sentence
from potluck.reports.runs import EVALUATION, METRICS, RunReadError, best_saved, read_lines
from potluck.version import __version__

TEMPLATE = Path(__file__).with_name("card.md.j2")
LOADING = TEMPLATE.with_name("card_loading.md")
"""End of the card of a whole model."""
HUB_ID = re.compile(r"(?!.*(?:--|\.\.))(?:\w[\w.-]*/)?\w(?:[\w.-]{0,94}\w)?", re.ASCII)


def card_of(config: RunConfig, node: str, folder: Path, round: int) -> str:
    """Write ``model_card`` with what ``folder`` tells of the first ``round`` rounds."""
    # A line of metrics is of what was learned in its round, one of evaluation of before it.
    metrics = _last(folder / METRICS, before=round)
    evaluation = _last(folder / EVALUATION, before=round + 1)
    ours = [each for each in answers(folder.parent) if each.node == node]
    told = [f"against a control: {sentence(each)}" for each in ours]
    if config.keep_best and (best := best_saved(folder)):
        told.append("best checkpoint: validation {:.4f}, after {} rounds".format(*best))
    return model_card(config, node, round, metrics, evaluation, told)


def model_card(
    config: RunConfig,
    node: str,
    round: int,
    metrics: Mapping[str, Any],
    evaluation: Mapping[str, Any],
    told: Sequence[str] = (),
) -> str:
    """Write Markdown behind YAML, whatever characters the recipe's strings have. ``metrics`` and
    ``evaluation`` are the last lines of these files, empty if there is none; ``told`` are
    further lines, such as on the node beside controls, in which it had no partners."""
    own, method, hub_data = config.node[node], method_of(config.objective), config.task.hub_name
    on_hub = own.model if _is_on_hub(own.model) else None
    data = ModelCardData(
        base_model=on_hub,
        library_name="peft" if own.lora else "transformers",
        pipeline_tag="text-generation",
        datasets=[hub_data] if _is_on_hub(hub_data) else None,
        tags=["potluck", "grpo", method, "reinforcement-learning", *["lora"] * bool(own.lora)],
    )
    other = (config.out_of_distribution or config.task).__struct_config__.tag
    text = _template().render(
        card_data=data.to_yaml(),
        version=__version__,
        config=config,
        objective=config.objective,
        node=own,
        own=node,
        round=round,
        metrics=metrics,
        evaluation=evaluation,
        told=told,
        method=method,
        task=str(config.task.__struct_config__.tag),
        base=json.dumps(on_hub or f"folder/of/{_last_part(own.model)}"),
        other=other,
        loading=LOADING.read_text().strip(),
        code=_code,
        model=_model,
        last_part=_last_part,
        g="{:g}".format,
    )
    return f"{text}\n"


@cache
def _template() -> Template:
    """Compile the template once: that takes ten times as long as to fill it in."""
    text = TEMPLATE.read_text(encoding="utf-8")
    template: Template = Template(text, undefined=StrictUndefined)
    return template


def merged_card(text: str) -> str:
    """Turn an adapter's card into that of the model that it was merged into."""
    card = ModelCard(text)
    head, heading, _ = card.text.rpartition("## Loading\n")
    card.text = f"{head}{heading}\n{LOADING.read_text()}" if heading else card.text
    tags = [tag for tag in card.data.get("tags") or () if tag != "lora"]
    vars(card.data).update(library_name="transformers", tags=tags)
    return str(card)


def _model(model: str) -> str:
    if _is_on_hub(model) or model.startswith("builtin:"):
        return _code(model)
    return f"{_code(_last_part(model))}, a folder where it was trained"


def _is_on_hub(name: str) -> bool:
    return bool(HUB_ID.fullmatch(name)) and not Path(name).exists()


def _last_part(path: str) -> str:
    return Path(path).name or "model"


def _code(text: str) -> str:
    """Make a code span that nothing in ``text`` can leave, in a table either.

    >>> _code("Qwen/Qwen2.5-1.5B"), _code("a`b|c\\n# d")
    ('`Qwen/Qwen2.5-1.5B`', '``a`b\\\\|c # d``')
    """
    line = "".join(c if c.isprintable() else " " for c in text).replace("|", "\\|")
    fence = "`" + max(re.findall("`*", line))
    padding = " " if line.startswith("`") or line.endswith("`") or not line.strip() else ""
    return f"{fence}{padding}{line}{padding}{fence}"


def _last(file: Path, *, before: int) -> dict[str, Any]:
    """Read the last whole line of an earlier round; empty if there is none, or one is damaged: a
    checkpoint without a number on its card is better than none."""
    with suppress(RunReadError):
        lines = [line for line in read_lines(file, dict[str, Any]) if line["round"] < before]
        return lines[-1] if lines else {}
    return {}
