"""The bound on the log lines that strangers can cause is the one of the peer port."""

from kraftlab.quorum.line_limit import LineLimit

__all__ = ("LineLimit",)
