"""Section 3 of the paper: pure functions on tensors, and the table of methods made of them. Import
from the files: this one stays empty, so that a recipe can be read without torch."""
