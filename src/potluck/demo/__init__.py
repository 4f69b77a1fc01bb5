"""``potluck demo``: two models that write in different notations, alone and together."""
