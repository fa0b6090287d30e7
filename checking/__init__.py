"""Checkers and tools of verification that import nothing of ours."""
