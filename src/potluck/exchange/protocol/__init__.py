"""The state of a node's exchange: pure state machines, the time is passed in."""
