"""Tells people of what happens in a run: messages from events, and their delivery to commands and webhooks."""
