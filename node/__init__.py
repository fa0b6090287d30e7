"""What every node's process has in common, whatever it serves: how it ends, and what it says about its copy of the metadata."""
