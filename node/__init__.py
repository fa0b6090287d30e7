"""The common part of every node's process: how it ends, and calls about its copy of the metadata."""
