"""``potluck demo``: two models that write in different notations, alone and together.

run.py      runs them side by side, and writes what follows
report.py   the result as a noun, in words, and as one HTML file
picture.py  its curves as a PNG
"""

from potluck.demo.run import Cell, DemoError, cells, demo, summarise

__all__ = ["Cell", "DemoError", "cells", "demo", "summarise"]
