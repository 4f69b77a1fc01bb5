"""Generation through a vLLM server, or one that answers as it does."""
