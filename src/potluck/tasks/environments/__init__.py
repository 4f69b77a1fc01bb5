"""Environments: classes of a user, or of the package, that answer a model turn by turn."""
