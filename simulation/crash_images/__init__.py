"""Exhaustive crashes of the broker's mover between log directories (W9). A real run is recorded file operation by file operation,
every state that a crash could leave on the disks is made, and the real recovery runs on each.
"""
