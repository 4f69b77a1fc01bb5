"""``potluck demo``: two models that write in different notations, alone and together."""

from potluck.demo.run import Cell, DemoError, cells, demo, summarise

__all__ = ["Cell", "DemoError", "cells", "demo", "summarise"]
