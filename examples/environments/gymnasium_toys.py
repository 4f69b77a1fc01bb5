"""Four toys of Gymnasium as games: copy this file, and install gymnasium (1.x).

[task]
name = "game"
game = "gymnasium_toys.py:FrozenLake"

potluck env check gymnasium_toys.py:FrozenLake
"""

import re


class Toy:
    """A world that speaks a number or a drawing, and is told a word."""

    actions: tuple[str, ...]

    def make(self, seed: int):
        raise NotImplementedError

    def reset(self, seed: int = 0) -> str:
        self.world = self.make(seed)
        seen, _ = self.world.reset(seed=seed)
        return f"{self.say(seen)}\nAnswer with one of: {', '.join(self.actions)}."

    def step(self, text: str) -> tuple[str, float, bool]:
        words = re.findall("|".join(self.actions), text.lower())
        if not words:
            return f"Answer with one of: {', '.join(self.actions)}.", 0.0, False
        seen, reward, is_over, is_cut, _ = self.world.step(self.actions.index(words[-1]))
        return self.say(seen), float(reward), bool(is_over or is_cut)

    def say(self, seen) -> str:
        # The colour that marks where one stands becomes a pair of brackets.
        return re.sub("\x1b\\[[0-9;]*m(.)\x1b\\[0m", "[\\1]", self.world.render()).strip()


class FrozenLake(Toy):
    actions = ("left", "down", "right", "up")

    def make(self, seed: int):
        import gymnasium
        from gymnasium.envs.toy_text.frozen_lake import generate_random_map

        lake = {"desc": generate_random_map(size=4, seed=seed), "is_slippery": False}
        return gymnasium.make("FrozenLake-v1", render_mode="ansi", **lake)


class Taxi(Toy):
    actions = ("south", "north", "east", "west", "pickup", "dropoff")

    def make(self, seed: int):
        import gymnasium

        return gymnasium.make("Taxi-v4", render_mode="ansi")


class CliffWalking(Toy):
    actions = ("up", "right", "down", "left")
    seeded = False  # it always begins in the same corner

    def make(self, seed: int):
        import gymnasium

        return gymnasium.make("CliffWalking-v1", render_mode="ansi")


class Blackjack(Toy):
    actions = ("stick", "hit")

    def make(self, seed: int):
        import gymnasium

        return gymnasium.make("Blackjack-v1")

    def say(self, seen) -> str:
        own, dealer, has_ace = seen
        return f"You have {own}{' with an ace' * has_ace}. The dealer shows {dealer}."
