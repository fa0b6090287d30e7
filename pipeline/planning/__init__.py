"""Plans that say where replicas are to be: which moves bring a cluster to its goals with the fewest bytes, and why each.

The way of a plan: `documents` (what a cluster is, as JSON) → `cluster` (the same as arrays) → `propose` (forced moves, then
`flow` and `realiser`, then `repair`, or for small clusters `exact`; then `leaders` and `log_dirs`) → `plan` (what is written
down) → `waves`, `explain`, `kafka_json`. `checks` judges plans, whoever made them, with code of its own. No module but
`checks_on_spark` needs Spark.
"""
