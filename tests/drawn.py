"""Draws what most runs of tests ask, so that what is forked from here need not."""

import cheap  # noqa: F401
import tiny

tiny.recipe({"any": "builtin:any"}).task.make()
