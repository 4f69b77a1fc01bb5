"""Engines that write with a model. ``options`` are read without torch, as recipes name them."""
