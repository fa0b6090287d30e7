"""A run as a page: static files that work from a disk."""
