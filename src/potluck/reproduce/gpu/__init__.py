"""What cells take on GPUs, estimated."""
