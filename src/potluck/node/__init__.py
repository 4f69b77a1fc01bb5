"""One node. The only room where the others meet."""
