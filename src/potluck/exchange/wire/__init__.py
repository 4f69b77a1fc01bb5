"""The wire format: one node's completions of a round as bytes."""
