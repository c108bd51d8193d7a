"""Reading logs: lines, levels, times, search, several files as one document. Independent of the terminal."""
