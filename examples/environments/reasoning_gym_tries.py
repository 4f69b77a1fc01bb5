"""Problems of reasoning-gym with a second try: copy this file, and install reasoning-gym (0.1.25).

    [task]
    name = "game"
    game = "reasoning_gym_tries.py:ChainSum"

Problems with one try need no environment: task "reasoning-gym".
"""


class Tries:
    """One problem; a wrong answer is told, `tries` times."""

    dataset: str
    parameters: dict
    tries = 3

    def reset(self, seed: int = 0) -> str:
        import reasoning_gym

        self.left = self.tries
        self.data = reasoning_gym.create_dataset(
            self.dataset, size=1, seed=seed % 2**32, **self.parameters
        )
        self.entry = self.data[0]
        return self.entry["question"]

    def step(self, text: str) -> tuple[str, float, bool]:
        self.left -= 1
        score = float(self.data.score_answer(text.strip(), self.entry))
        is_right = score >= 1
        return (
            "" if is_right else "That is wrong. Try again.",
            score * is_right,
            is_right or not self.left,
        )


class ChainSum(Tries):
    dataset, parameters = "chain_sum", {"max_terms": 3, "max_digits": 1, "min_digits": 1}
    actions = ("7", "12", "no idea", "3")
