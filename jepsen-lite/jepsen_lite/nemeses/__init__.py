"""What breaks a cluster: fault plans drawn from a seed, and who carries them out."""
