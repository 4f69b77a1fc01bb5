"""What most runs ask, drawn: the server that nodes are forked from loads it for all of them."""

import errno
from multiprocessing import reduction

import cheap  # noqa: F401
import tiny

tiny.recipe({"any": "builtin:any"}).task.make()
recvfds = reduction.recvfds


def received(*given):
    try:
        return recvfds(*given)
    except EOFError as error:  # the asking process was killed: go on
        raise ConnectionAbortedError(errno.ECONNABORTED, "nothing was asked") from error


reduction.recvfds = received
