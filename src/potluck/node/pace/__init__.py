"""The paces of a node: in step with the others, or rounds of its own."""
