"""Build what a recipe names: the task, the nodes, and a folder that is theirs."""
