"""Keys, signatures and certificates."""
