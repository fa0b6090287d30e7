"""Golden transcripts: a small language of commands for consensus nodes, and their output as text."""
