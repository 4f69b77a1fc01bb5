"""Bounds of what a page reads and shows: files of a run are of other people, too. All that is left
out is the oldest, or is told."""

MOST_NODES = 512
MOST_AUTHORS = 128
"""Authors of one node."""
MOST_FUNCTIONS = 16
"""Reward functions of one node."""
MOST_ROWS = 20_000
"""Rounds of a node that are kept; of more every second one is dropped, the newest ones never."""
MOST_INDEXED = 100_000
"""Rounds of a node whose completions are found."""
MOST_EVENTS = 500
MOST_RUNS = 200
MOST_FOLDERS = 5000
"""Folders that are looked into, for all that is watched."""
MOST_TEXTS, MOST_PLACES = 256, 200
"""Completions of one answer; places of surprising ones."""
TEXT, NAME = 20_000, 200
"""Longest text and name of a completion."""
SEARCH_BYTES, PAIR_BYTES = 64 << 20, 256 << 20
"""Most of a file that is read for one search, or one pair, from its end."""
ROUND_BYTES = 4 << 20
"""Most of a round's completions that is read at once."""
MOST_STREAMS = 256
"""Pages that are open at the same time."""
