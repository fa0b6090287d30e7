"""Golden transcripts: a small language of steps that consensus nodes carry out, and the text of what they did."""
