"""The exchange over Zenoh: a session, its threads, and one node's endpoint."""
