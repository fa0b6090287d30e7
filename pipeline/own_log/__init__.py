"""The metadata log of our own controllers, read without a node: segments and snapshots, damaged or not."""
