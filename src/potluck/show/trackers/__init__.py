"""Curves on TensorBoard, W&B and trackio. Each is an extra, none is needed."""
