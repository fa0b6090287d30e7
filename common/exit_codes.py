"""Exit codes of all commands. docs/exit-codes.md has them as a table.

A process that a signal ends has 128 plus its number, as in shells. Only a text that Kafka's own tool gives with another code,
as its transcripts show, keeps that code.
"""

DONE = 0
FAILED = 1
"""An error, or findings: a broken rule, drift, damage, a check that fails."""
UNFINISHED = 2
"""Still in progress, or not decided: ask again, or give it more time."""
USAGE = 64
"""The command line is wrong; nothing was done."""
MACHINE = 70
"""This machine lacks something: Java, strace, a package, a right."""
INTERRUPTED = 130
"""Ended by Ctrl-C."""
