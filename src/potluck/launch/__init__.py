"""Run nodes: all in this process, one in this process, or a process for each."""
