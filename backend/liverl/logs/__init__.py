"""Reading logs: lines, levels, times, search, and several files as one. Nothing here knows a terminal."""
