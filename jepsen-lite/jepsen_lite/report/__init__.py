"""Pages of runs: static files that work from disk."""
