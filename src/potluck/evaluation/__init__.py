"""``potluck evaluate``: what a model can do as it is, and whether another can do more."""
