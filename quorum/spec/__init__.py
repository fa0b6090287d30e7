"""The TLA+ specification of the quorum (README.md), and the check of traces and small models against it with TLC."""
