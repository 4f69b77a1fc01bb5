"""The exchange between processes, whatever carries the bytes: a node's threads and what they do."""
