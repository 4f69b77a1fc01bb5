"""A node's files."""
