"""The version of the installed package, in a file that imports no other one."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("potluck")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"
