"""Authors without weights of ours: served models and files of solutions, which only write."""
