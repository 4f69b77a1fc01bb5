"""Prints the Python blocks of a Markdown file, one after the other."""

import re
import sys
from pathlib import Path

blocks = re.findall(r"^```python\n(.*?)^```", Path(sys.argv[1]).read_text(), re.M | re.S)
assert blocks, "the README has no Python example"
print("\n".join(blocks))
