"""Games of TextArena with one player: copy this file, and install textarena (0.7.4).

    [task]
    name = "game"
    game = "textarena_games.py:Sokoban"

Each subclass is one game, by its name in the library, with a few answers for `potluck env check`.
Wordle, Hangman and others load a list of words from the network: there they cannot begin.
"""


class Game:
    name: str

    def reset(self, seed: int = 0) -> str:
        import textarena

        self.game = textarena.make(self.name)
        self.game.reset(num_players=1, seed=seed)
        return self.game.get_observation()[1]

    def step(self, text: str) -> tuple[str, float, bool]:
        is_done, _ = self.game.step(action=text)
        if is_done:
            rewards, _ = self.game.close()
            return "", float(rewards[0]), True
        return self.game.get_observation()[1], 0.0, False


class FrozenLake(Game):
    name = "FrozenLake-v0"
    actions = ("[up]", "[down]", "[left]", "[right]")


class Sokoban(FrozenLake):
    name = "Sokoban-v0"


class Game2048(FrozenLake):
    name = "2048-v0"


class Minesweeper(Game):
    name = "Minesweeper-v0"
    actions = ("[1 1]", "[0 5]", "[4 4]", "[7 2]")


class Mastermind(Game):
    name = "Mastermind-v0"
    actions = ("[1 2 3 4]", "[4 3 2 1]", "[1 1 2 2]", "[6 5 4 3]")


class GuessTheNumber(Game):
    name = "GuessTheNumber-v0"
    actions = ("[10]", "[5]", "[15]", "[2]")


class TowerOfHanoi(Game):
    name = "TowerOfHanoi-v0"
    actions = ("[A C]", "[A B]", "[C B]")
    seeded = False  # it always begins with all discs on one peg


class LightsOut(Game):
    name = "LightsOut-v0"
    actions = ("[0 0]", "[1 2]", "[3 3]")
