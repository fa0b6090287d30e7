"""Checkers and tools of verification. They import nothing of ours, except the runner of recorded cases."""
