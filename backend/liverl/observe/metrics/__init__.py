"""Training metrics: files, console lines, series for charts, step times."""
