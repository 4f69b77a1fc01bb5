"""What most runs ask, drawn: the server that nodes are forked from loads it for all of them."""

import cheap  # noqa: F401
import tiny

tiny.recipe({"any": "builtin:any"}).task.make()
