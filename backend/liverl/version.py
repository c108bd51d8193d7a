"""The version, alone in its module so that the build and ``--version`` read it without importing anything."""

__version__ = "0.1.0"
