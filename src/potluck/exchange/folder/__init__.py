"""The exchange through a folder or a bucket: no node has to reach another."""
