"""Plans for the placement of replicas: the moves that bring a cluster to its goals with the fewest bytes, with a reason for each.

The steps of a plan: `documents` (a cluster as JSON) → `cluster` (the same as arrays) → `propose` (forced moves, then `flow` and
`realiser`, then `repair`, or for small clusters `exact`; then `leaders` and `log_dirs`) → `plan` (the document) → `waves`,
`explain`. `checks` judges plans of any origin with code of its own.
"""
