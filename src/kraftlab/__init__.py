"""kraftlab: a KIP-500-style metadata quorum, its brokers and its tools.

The rooms of the house stand at the top of the repository; this package only links to them.
"""

__version__ = "0.1.0"
