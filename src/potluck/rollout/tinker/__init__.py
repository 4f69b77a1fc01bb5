"""A model that is served and trained behind the Tinker API."""
