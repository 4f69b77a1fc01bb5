"""Runs cells."""
