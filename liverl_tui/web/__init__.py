"""The interface in a browser: a page with a terminal, behind a token, on the loopback address."""
