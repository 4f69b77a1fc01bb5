"""Output for people: a run while it goes, and a run folder afterwards. Text of a model or a peer
passes ``printable`` before it is shown, wherever that is."""
