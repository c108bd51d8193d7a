"""The form in which an engine is described: command line, boot log, metric names."""
