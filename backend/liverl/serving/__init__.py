"""Replicas and the proxy as one thing: which replicas serve, which the proxy routes to, and how many there are."""
