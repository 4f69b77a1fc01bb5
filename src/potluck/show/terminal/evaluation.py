"""Results of ``potluck evaluate``, on 80 columns."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck.files import printable
from potluck.show.terminal.text import formatted

LONGEST_END = 300
"""Characters of an answer's end that are shown."""


def show_evaluation(found: Mapping[str, Any], console: Console) -> None:
    models = found["models"]
    console.print(_headline(found), highlight=False)
    for letter, name in models.items():
        label = f"{letter}  " if len(models) > 1 else ""
        console.print(Text(f"{label}{printable(name, 400)}"), highlight=False, soft_wrap=True)
    for split in found["splits"]:
        count = f"{split['problems']} problem{'s' * (split['problems'] != 1)}"
        console.print()
        console.print(Text.assemble((split["split"], "bold"), f", {count}"), highlight=False)
        console.print(_table(split, [*split["earned_nothing"]]))
        for line in _remarks(split):
            console.print(Text(line), highlight=False)
    console.print(Text("\n[...]: 95 %, over problems", style="dim"), highlight=False)
    if found["partial"]:
        text = "partial: it was stopped, and this is what was done by then"
        console.print(Text(text, style="yellow"), highlight=False)


def _headline(found: Mapping[str, Any]) -> Text:
    settings = found["settings"]
    facts = f"{settings['max_new_tokens']} new tokens at most"
    if samples := settings["samples"]:
        facts += f"; {samples} sample{'s' * (samples != 1)}"
        facts += f" at temperature {settings['temperature']:g}"
        facts += f", top-k {settings['top_k']}" if settings["top_k"] else ""
        facts += f", top-p {settings['top_p']:g}" if settings["top_p"] < 1 else ""
        facts += f", seed {settings['seed']}"
    name = printable(found["task"]["name"], 40)
    return Text.assemble((name, "bold"), f" {found['task']['digest'][:12]}", (f"  {facts}", "dim"))


def _table(split: Mapping[str, Any], models: list[str]) -> Table:
    paired = len(models) > 1
    # Without lines: three intervals abreast need every column there is.
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("measure", *([*models, "A - B"] if paired else ["value"])):
        table.add_column(column, overflow="fold")
    for measure in split["measures"]:
        cells = [_estimate(measure[model]) for model in models]
        if paired:
            between = _estimate(measure["difference"], signed=True)
            between.stylize("bold" if measure["better"] else "")
            cells.append(between)
        # A function's numbers stand below what they add up to.
        name = re.sub("^reward/", "  ", measure["measure"])
        table.add_row(Text(printable(name, 80)), *cells)
    return table


def _estimate(estimate: Mapping[str, float | None], *, signed: bool = False) -> Text:
    format = "+z.3f" if signed else "z.3f"
    value, low, high = (formatted(estimate[key], format) for key in ("value", "low", "high"))
    return Text(f"{value} [{low}, {high}]")


def _remarks(split: Mapping[str, Any]) -> Iterator[str]:
    if "greedy_right" in split:
        for better in dict.fromkeys(measure["better"] for measure in split["measures"]):
            names = [m["measure"] for m in split["measures"] if m["better"] == better]
            verdict = f"{better} is better" if better else "A and B cannot be told apart"
            yield f"{verdict}: {', '.join(names)}"
        right = split["greedy_right"]
        yield (
            f"greedy right: both {right['both']}, only A {right['only_a']}, only B "
            f"{right['only_b']}, neither {right['neither']}"
        )
    told = "that are not right" if split["right"] else "that earned nothing"
    for model, faults in split["earned_nothing"].items():
        if not faults:
            continue
        counts = "; ".join(f"{each['count']} {_in_words(each)}" for each in faults)
        all = sum(each["count"] for each in faults)
        of = f"{model}: " * (len(split["earned_nothing"]) > 1)
        yield f"{of}greedy answers {told}: {all} of {split['problems']}: {counts}"
        for each in faults:
            for example in each["examples"]:
                yield from _example(each["kind"], example)
    if constant := split["constant"]:
        answer = printable(constant["answer"], 40)
        blind = constant["guess"]
        beside = "" if blind is None else f", a guess among the options {blind:.3f}"
        yield f"the one answer {answer!r} to all of them would earn {constant['share']:.3f}{beside}"
    if not split["binary"]:
        yield "greedy: the mean reward, and no accuracy, as rewards are not all 0 or 1"
    if not split["binary"] or not split["right"]:
        yield printable(split["right_in_words"], 400)


def _in_words(fault: Mapping[str, Any]) -> str:
    return f"in the wrong form ({fault['what']})" if fault["kind"] == "form" else fault["what"]


def _example(kind: str, example: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of one answer: what was asked, what is right, its end."""
    right = f", right is {printable(example['expected'], 60)}" if example["expected"] else ""
    yield f"  {kind}: {printable(example['id'], 80)}{right}"
    text = printable(example["text"], len(example["text"]) + 1)
    yield f"    {'…' * (len(text) > LONGEST_END)}{text[-LONGEST_END:]}"
