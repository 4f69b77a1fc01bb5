"""An environment of SkyRL-Gym as a game: copy this file, and install skyrl-gym (0.4).

    [task]
    name = "jsonl"
    path = "rows.jsonl"           # its columns become the environment's extras
    game = "skyrl_environment.py:Multiply"

Put your own class in place of `Doubles`; it stays as it is.
"""

import random

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput


class Skyrl:
    """Any `BaseTextEnv`, which takes messages and answers with messages."""

    def made(self, **row) -> BaseTextEnv:
        raise NotImplementedError

    def reset(self, **row) -> str:
        self.environment = self.made(**row)
        prompt = [{"role": "user", "content": str(row.get("question", ""))}]
        messages, _ = self.environment.init(prompt)
        # The question itself stands before this text already.
        return "\n".join(m["content"] for m in messages if m not in prompt)

    def step(self, text: str) -> tuple[str, float, bool]:
        out = self.environment.step(text)
        said = "\n".join(m["content"] for m in out["observations"])
        return said, float(out["reward"]), bool(out["done"])


class Doubles(BaseTextEnv):
    """An environment as SkyRL-Gym has them: say twice the number."""

    def __init__(self, number: int):
        super().__init__()
        self.number, self.max_turns = number, 4

    def init(self, prompt):
        return [*prompt, {"role": "user", "content": f"What is 2 x {self.number}?"}], {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        self.turns += 1
        is_right = action.strip() == str(2 * self.number)
        hint = "" if is_right else "Larger." if action.strip().isdecimal() else "A number, please."
        return BaseTextEnvStepOutput(
            observations=[{"role": "user", "content": hint}],
            reward=float(is_right),
            done=is_right or self.turns >= self.max_turns,
            metadata={},
        )


class Double(Skyrl):
    actions = ("10", "14", "what?", "18")

    def made(self, seed: int = 0, **row) -> BaseTextEnv:
        return Doubles(random.Random(seed).randrange(10))
