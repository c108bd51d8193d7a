"""The terminal interface and command line of liverl-tui; the backend is the package ``liverl``."""
