"""The state of a run as metrics for Prometheus: their names (``series``) and the server (``server``)."""
