"""What the server that nodes are forked from loads: what most runs ask, drawn, so that they need
not; and Ctrl-C waits until a node can take it (``forked.py``)."""

import signal

import cheap  # noqa: F401
import tiny

tiny.recipe({"any": "builtin:any"}).task.make()
# One that came between the fork and the command ended a node with code 1 and a traceback.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
