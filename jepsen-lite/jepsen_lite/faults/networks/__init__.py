"""Networks that a run makes for itself: one network namespace per node, and a switch between them."""
