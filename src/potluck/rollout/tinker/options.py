"""The table [node.NAME.engine] of a model behind the Tinker API; see docs/tinker.md."""

from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from potluck.fields import ConfigError
from potluck.rollout.texts.options import PaidOptions, Price
from potluck.types import Sampling

if TYPE_CHECKING:
    from potluck.rollout.texts.base import Cost


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
