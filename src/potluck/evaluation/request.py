"""Options of an evaluation, completed from a recipe or a run's folder, before torch is imported."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from potluck.config import ConfigError, NodeConfig, RunConfig, from_tree, load
from potluck.tasks import Split

SPLITS: tuple[Split, ...] = ("validation", "out-of-distribution")
CHOICES = {"split": (*SPLITS, "both"), "dtype": ("float32", "bfloat16")}


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """Models to evaluate, on what, and how."""

    model: str
    """A folder, a Hugging Face id, ``builtin:NAME``, or a node's folder in a run."""
    against: str = ""
    """Another model, to compare with on the same problems."""
    task: str = ""
    recipe: Path | None = None
    """A .toml, a recipe.json or a run's folder: task, sampling and numbers of problems are its.
    Without it and ``task``: that of the run whose node ``model`` is."""
    overrides: Sequence[str] = ()
    """Keys of the recipe, such as ``"task.path=data"``; of ``task`` alone, too."""
    split: str = "both"
    k: int = 0
    """The k of pass@k; 0: greedy only, unless ``samples`` asks for some."""
    samples: int = 0
    """Answers sampled for each problem; 0: k of them."""
    seed: int = 0
    device: str = "auto"
    dtype: str = "float32"
    rows: int = 0
    """Answers that are written at once; 0: as the recipe's most modest node."""
    trust_code: bool = False
    shown: int = 1
    """Examples that are kept of each kind of answer that earned nothing."""

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ConfigError(f"--{name} is {value!r}; choose one of {', '.join(choices)}")
        model = Path(self.model)
        is_of_run = any((above / "recipe.json").is_file() for above in model.parents)
        if not (self.recipe or self.task or model.exists() or is_of_run):
            raise _no_task(f"; there is no run {self.model!r} here")

    def resolved(self) -> "Settings":
        """Fill in what it leaves to a recipe. Raise ConfigError where it contradicts itself, names
        no task, or a key that no run has; ModelError as ``newest`` does."""
        from potluck.node.storage import checkpoint

        k = self.k or min(self.samples, 1)
        samples = self.samples or k
        if samples < k:
            raise ConfigError(
                f"pass@{k} needs at least {k} samples of each problem, but --samples is {samples}; "
                f"raise it or lower --k"
            )
        models = [checkpoint.newest(model) for model in (self.model, self.against) if model]
        config, run = _config(self, Path(models[0]))
        rows = self.rows or min(node.sampling_rows for node in config.node.values())
        return Settings(config, run, tuple(models), k, samples, rows)


@dataclass(frozen=True, slots=True)
class Settings:
    """A request, completed."""

    config: RunConfig
    run: Path | None
    """Folder of the run that may know the environment's grade."""
    models: tuple[str, ...]
    k: int
    samples: int
    """0: greedy only."""
    rows: int


def asked_as(config: RunConfig, model: str) -> NodeConfig:
    """Find the node that says how a model is asked (its chat template, with which variables): its
    own, where it is a checkpoint of a run; else the recipe's node of that model; else any, where
    all say the same; else one that says nothing."""
    place = Path(model)
    run = place.parent.parent.parent
    if place.parent.name == "checkpoints" and (run / "recipe.json").is_file():
        nodes = load(run / "recipe.json").node
        name = place.parent.parent.name
        if name in nodes:
            return nodes[name]

    learners = list(config.learners.values())
    for node in learners:
        if node.model == model:
            return node

    if len({_template(node) for node in learners}) == 1:
        return learners[0]
    return NodeConfig()


def _template(node: NodeConfig) -> str:
    return json.dumps([node.chat_template, dict(node.chat_template_kwargs)], sort_keys=True)


def _config(request: EvaluationRequest, model: Path) -> tuple[RunConfig, Path | None]:
    """Read the recipe, and find the run: that of the recipe, else that of which the model is."""
    recipe = request.recipe
    if recipe and request.task:
        raise ConfigError("--task and --recipe both name a task; drop one of them")
    # <run>/<node>/checkpoints/<round>
    above = [model.parent.parent.parent] if model.parent.name == "checkpoints" else []
    runs = (each for each in (recipe, *above) if each and (each / "recipe.json").is_file())
    run = next(runs, None)
    if not request.task and not (recipe := recipe or run):
        raise _no_task()
    if recipe:
        config = load(recipe / "recipe.json" if recipe.is_dir() else recipe, request.overrides)
    else:
        own = {"evaluation": {"max_new_tokens": 512}, "node": {"model": {"model": request.model}}}
        tree = {"name": "evaluation", "task": {"name": request.task}, **own}
        config = from_tree(tree, request.overrides)
    # Nothing is trained here, so a task needs few problems to train on.
    return msgspec.structs.replace(config, problems_per_round=1), run


def _no_task(also: str = "") -> ConfigError:
    return ConfigError(
        f"no task is named; add --task NAME, or --recipe FILE_OR_RUN to be asked as a run asks "
        f"(see potluck evaluate --help){also}"
    )
