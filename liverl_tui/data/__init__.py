"""What the interface shows: views of a run, where they come from, and the files it writes itself."""
