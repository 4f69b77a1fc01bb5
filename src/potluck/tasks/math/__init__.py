"""Grading of answers in mathematics: reading them, and algebra in processes."""
