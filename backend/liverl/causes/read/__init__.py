"""Bytes of logs to the records that may matter for a verdict."""
