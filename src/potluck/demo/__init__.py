"""``potluck demo``: a small and a large model, alone and together."""
