"""The tables [node.NAME.engine] of what may cost money, and of files; without torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta
from msgspec.structs import replace

from potluck.fields import Amount, ConfigError, Count, Positive
from potluck.rollout.options import ServedOptions, TextOptions
from potluck.types import Problem, Sampling

if TYPE_CHECKING:
    from potluck.rollout.base import EngineSettings
    from potluck.rollout.texts.base import Cost, TextEngine
    from potluck.rollout.texts.file import SolutionFile

Price = Annotated[float, Meta(ge=0)]


class PaidOptions(ServedOptions, frozen=True, kw_only=True):
    """A server that may cost money."""

    budget_tokens: Amount = 0
    """Tokens of prompts and completions after which the server is asked no more; 0: no limit."""
    budget_usd: Price = 0.0
    """US dollars, by the prices, after which the server is asked no more; 0: no limit."""
    usd_per_million_prompt: Price = 0.0
    """Price of a million tokens of prompts, US dollars."""
    usd_per_million_completion: Price = 0.0
    """Price of a million tokens of completions, hidden reasoning included, US dollars."""

    def cost(self, prompt_tokens: int, completion_tokens: int) -> "Cost":
        """Count one request at these prices."""
        from potluck.rollout.texts.base import Cost

        usd = prompt_tokens * self.usd_per_million_prompt
        usd += completion_tokens * self.usd_per_million_completion
        return Cost(1, prompt_tokens, completion_tokens, usd / 1e6)

    def spent(self, node: str, cost: "Cost") -> str:
        """Say that a limit is reached; empty: none is."""
        prompts, completions = cost.prompt_tokens, cost.completion_tokens
        tokens, usd = prompts + completions, round(cost.usd, 9)  # sums are rounded
        if 0 < self.budget_tokens <= tokens or 0 < self.budget_usd <= usd:
            parts = f"{prompts} tokens of prompts, {completions} of completions, {cost.usd:.2f} USD"
            return f"the budget of {node!r} is spent ({parts})"
        return ""

    def require_sense(self, at: str, *, dtype: str, sampling: Sampling) -> None:
        super().require_sense(at, dtype=dtype, sampling=sampling)
        if self.budget_usd and not self.usd_per_million_prompt + self.usd_per_million_completion:
            limit = f"[{at}.engine] budget_usd is {self.budget_usd:g}, but no token has a price"
            raise ConfigError(f"{limit}; set usd_per_million_prompt and usd_per_million_completion")


class OpenAIOptions(
    PaidOptions, TextOptions, frozen=True, kw_only=True, tag_field="name", tag="openai"
):
    """A model behind an OpenAI-compatible address writes; it learns nothing: docs/authors.md."""

    model: str
    """Name under which the server has the model."""
    concurrency: Count = 8
    """Requests that are under way at once."""
    timeout_s: Positive = 300.0
    """Longest wait for one answer, retries included. Seconds."""
    retries: Amount = 3
    """Further attempts where the server is busy or away; its Retry-After is kept to."""

    def open(self, settings: "EngineSettings") -> "TextEngine":
        from potluck.rollout.texts.openai import OpenAIEngine

        return OpenAIEngine(self, settings)

    def require_ready(self, *, adapter: bool, longest: int) -> None:
        from potluck.rollout.server import run_loop
        from potluck.rollout.texts.endpoint import require_ready

        run_loop(require_ready(self))

    @property
    def title(self) -> str:
        return f"{self.model} at {self.url}"


class FileOptions(TextOptions, frozen=True, kw_only=True, tag_field="name", tag="file"):
    """A file of JSON lines writes: each line has a problem and one solution or several."""

    path: str
    """File of the solutions."""
    problem: str = "problem"
    """Key of the problem: its id, or its question as the task asks it."""
    solution: str = "solution"
    """Key of the solution: a text, or a list of texts."""

    may_change: ClassVar[bool] = True  # the file may lie elsewhere now

    def open(self, settings: "EngineSettings") -> "TextEngine":
        from potluck.rollout.texts.file import FileEngine

        return FileEngine(self.read(), settings)

    def read(self) -> "SolutionFile":
        """Read the whole file once; raise RolloutError with the line that is not as expected."""
        from potluck.rollout.texts.file import SolutionFile

        return SolutionFile(Path(self.path).expanduser(), self.problem, self.solution)

    @property
    def title(self) -> str:
        return f"solutions of {Path(self.path).name}"

    def coverage(self, problems: Sequence[Problem]) -> str:
        from potluck.rollout.base import RolloutError

        if not (solved := self.read().solved(problems)):
            raise RolloutError(
                f"{self.path} has no solution of any of {len(problems)} problems; expected the id "
                f"({problems[0].id!r}) or the question of a problem as {self.problem!r}"
            )
        return f"has solutions of {solved:,} of {len(problems):,} problems"

    def require_ready(self, *, adapter: bool, longest: int) -> None:
        from potluck.rollout.texts.file import require_file

        require_file(Path(self.path).expanduser())


class TinkerOptions(PaidOptions, frozen=True, kw_only=True, tag_field="name", tag="tinker"):
    """A server writes with the node's model and trains its adapter: docs/tinker.md."""

    tokenizer: str = ""
    """Folder or Hugging Face id of the model's tokenizer and config.json; empty: ``model``."""
    usd_per_million_train: Price = 0.0
    """Price of a million tokens that are trained on, US dollars."""

    trains: ClassVar[bool] = True
    uses: ClassVar[frozenset[str] | None] = frozenset(
        {"engine", "weight", "stranger", "model", "lora", "learning_rate", "lr_schedule"}
        | {"warmup_updates", "adam_betas", "gradient_clip_norm"}
        | {"chat_template", "chat_template_kwargs"}
    )
    of_library: ClassVar[tuple[str, ...]] = (
        *("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD", "TINKER_PROJECT_ID", "TINKER_TAGS"),
        *("CLOUDFLARE_ACCESS_CLIENT_ID", "CLOUDFLARE_ACCESS_CLIENT_SECRET"),
    )

    def reads(self, model: str) -> str:
        return self.tokenizer or model

    def require_sense(self, at: str, *, dtype: str, sampling: Sampling) -> None:
        super().require_sense(at, dtype=dtype, sampling=sampling)
        prices = self.usd_per_million_prompt, self.usd_per_million_completion
        if self.budget_usd and not all((*prices, self.usd_per_million_train)):
            raise ConfigError(
                f"[{at}.engine] budget_usd is {self.budget_usd:g}, but not every token has a "
                f"price; set usd_per_million_prompt, ..._completion and ..._train"
            )
        if sampling != Sampling():
            raise ConfigError(
                f"[{at}.engine] 'tinker' tells log-probabilities of whole policies at temperature "
                f"1, but [sampling] has {sampling}; drop temperature, top_k and top_p there"
            )

    def training_cost(self, tokens: int) -> "Cost":
        """Bound the cost of tokens that are scored, which may be billed either way, or learned."""
        dearer = max(self.usd_per_million_train, self.usd_per_million_prompt)
        return replace(self, usd_per_million_prompt=dearer).cost(tokens, 0)
