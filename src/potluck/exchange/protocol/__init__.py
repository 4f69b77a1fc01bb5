"""Pure state machines of a node's exchange; ``now_s``: seconds of a clock that never goes back."""
