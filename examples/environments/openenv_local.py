"""An environment of OpenEnv without its server: copy this file, install openenv (0.10), and put the
folder `envs/grid_world_env` of its repository beside it.

    [task]
    name = "game"
    environment = "openenv_local.py:GridWorld"

The result is one more class of TRL's `environment_factory`: its public methods are tools.
"""

from grid_world_env.models import GridWorldAction
from grid_world_env.server.grid_world_environment import GridWorldEnvironment


class Local:
    """Any `Environment` of OpenEnv, which is asked here and not over a network."""

    def _begin(self, world, **row) -> str:
        self.world, self.paid, self.done = world, 0.0, False
        return self._say(world.reset(**row))

    def _act(self, action) -> str:
        if self.done:
            raise ValueError("it is over")
        seen = self.world.step(action)
        self.paid, self.done = self.paid + float(seen.reward or 0.0), bool(seen.done)
        return self._say(seen)

    def _say(self, seen) -> str:
        return seen.model_dump_json()

    def get_reward(self) -> float:
        return self.paid


class GridWorld(Local):
    """Five by five cells, from one corner to the other."""

    seeded = False  # it always begins in the same corner

    def reset(self) -> str:
        return self._begin(GridWorldEnvironment())

    def move(self, direction: str) -> str:
        """Move by one cell.

        Args:
            direction: UP, DOWN, LEFT or RIGHT.
        """
        return self._act(GridWorldAction(action=direction))

    def _say(self, seen) -> str:
        return f"[{seen.x}, {seen.y}] {seen.message}"
