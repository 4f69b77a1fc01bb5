"""From completions to a step of the optimiser, in one process or several."""
