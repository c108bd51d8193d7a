"""The keeper process, which is the parent of all services of a run, and the backend's client for it."""
