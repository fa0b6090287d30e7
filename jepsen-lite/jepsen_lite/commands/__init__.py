"""The commands of `kraftlab chaos`, one module each."""
