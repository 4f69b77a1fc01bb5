"""Learning: completions become a step of the optimiser, in one process or several."""
