"""Processes of this host: listing, identity, resource use, process trees, signals."""
