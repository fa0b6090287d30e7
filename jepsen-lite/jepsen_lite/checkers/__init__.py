"""What judges a run: each checker is a pure function of it, and knows nothing of how it was made."""
