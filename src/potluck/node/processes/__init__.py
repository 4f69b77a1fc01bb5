"""Several processes as one participant."""
