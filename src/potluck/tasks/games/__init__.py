"""Tasks of many turns for small models: a game, and a tool."""
