"""Reads ``experiments/``; a wrong key or value is refused with its file and what was expected."""

import math
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from potluck.reproduce.suite import (
    SCALES,
    ExpectedFile,
    Experiment,
    ExperimentError,
    ExperimentFile,
    Scale,
    ScaleFile,
    Setting,
    Suite,
)


def read_suite(folder: Path) -> Suite:
    """Reads and checks everything.

    Raises:
        ExperimentError: the folder is not there, or something in it is wrong or names what
            is not there.
    """
    if not (folder / "settings.toml").is_file():
        raise ExperimentError(
            f"{folder} holds no experiments; run this in a clone of the repository, or name its "
            f"folder with --experiments"
        )
    settings = {
        name: _convert(table, Setting, folder / "settings.toml", f"[{name}]")
        for name, table in _toml(folder / "settings.toml").items()
    }
    scales: dict[Scale, ScaleFile] = {
        scale: _read(folder / f"{scale}.toml", ScaleFile) for scale in SCALES
    }
    experiments = tuple(
        _experiment(file.parent) for file in sorted(folder.glob("*/experiment.toml"))
    )
    suite = Suite(folder, settings, scales, experiments)
    _require_names(suite)
    return suite


def _experiment(folder: Path) -> Experiment:
    what = _read(folder / "experiment.toml", ExperimentFile)
    expected = _read(folder / "expected.toml", ExpectedFile)
    return Experiment(
        folder.name,
        what.title,
        what.figure,
        what.settings,
        what.pairs,
        expected.claim,
        expected.changes,
        _notes(folder / "notes.md"),
    )


def _notes(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ExperimentError(f"cannot read {path}: {error}; write it as UTF-8") from None


def _require_names(suite: Suite) -> None:
    """Raises ExperimentError where a file names what no other file has."""
    for scale, file in suite.scales.items():
        for name, family in file.family.items():
            for pair, models in family.pair.items():
                if len(set(models)) < len(models):
                    raise ExperimentError(
                        f"{suite.folder / scale}.toml: [family.{name}.pair] {pair} names a model "
                        f"twice; give it a second name in [family.{name}.model], as twins have"
                    )
                for model in models:
                    if model not in family.model:
                        raise ExperimentError(
                            f"{suite.folder / scale}.toml: [family.{name}.pair] {pair} names the "
                            f"model {model!r}; there are {', '.join(family.model)}"
                        )
    for experiment in suite.experiments:
        _require_settings(suite, experiment)
        _require_claims(suite, experiment)
        _require_pairs(suite, experiment)


def _require_settings(suite: Suite, experiment: Experiment) -> None:
    for setting in experiment.settings:
        if setting not in suite.settings:
            raise ExperimentError(
                f"{suite.folder / experiment.name} names the setting {setting!r}; settings.toml "
                f"has {', '.join(suite.settings)}"
            )


def _require_claims(suite: Suite, experiment: Experiment) -> None:
    where, seen = suite.folder / experiment.name / "expected.toml", set[str]()
    for claim in experiment.claims:
        if claim.id in seen:
            raise ExperimentError(f"{where} has two claims {claim.id!r}; give one another id")
        seen.add(claim.id)
        for setting in (claim.setting, claim.than):
            if setting not in experiment.settings:
                raise ExperimentError(
                    f"{where} compares {setting!r}, which experiment.toml does not run; its "
                    f"settings are {', '.join(experiment.settings)}"
                )
        if claim.measure == "out-of-distribution" and claim.when == "early":
            raise ExperimentError(
                f"{where}: claim {claim.id!r} is about out-of-distribution accuracy early, which "
                f'is only measured at the end; write when = "end"'
            )


def _require_pairs(suite: Suite, experiment: Experiment) -> None:
    for scale, pairs in experiment.pairs.items():
        for pair in pairs:
            family, _, name = pair.partition(".")
            there = suite.scales[scale].family
            if family not in there or name not in there[family].pair:
                raise ExperimentError(
                    f"{suite.folder / experiment.name}/experiment.toml names the pair {pair!r}, "
                    f"which {scale}.toml has not; write FAMILY.PAIR"
                )


Kind = TypeVar("Kind", bound=Struct)


def _read(path: Path, kind: type[Kind]) -> Kind:
    return _convert(_toml(path), kind, path, "")


def _convert(tree: Any, kind: type[Kind], path: Path, where: str) -> Kind:
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        raise ExperimentError(f"{path}{where and f', {where}'}: {error}") from None


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=_finite)
    except FileNotFoundError:
        raise ExperimentError(f"there is no {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ExperimentError(f"cannot read {path}: {error}") from error


def _finite(text: str) -> float:
    """NaN would pass every bound."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number
