"""Notifications: makes messages from the events of a run, and delivers them to commands and webhooks."""
