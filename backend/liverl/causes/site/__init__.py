"""Rows of a site, beside those of the program: read, checked and shown."""
