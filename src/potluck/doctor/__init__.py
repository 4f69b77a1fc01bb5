"""The doctor: everything that would keep this machine from taking part in a swarm."""
