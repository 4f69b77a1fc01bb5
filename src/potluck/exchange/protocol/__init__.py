"""Pure state machines of a node's exchange; times are seconds of a clock that never goes back."""
