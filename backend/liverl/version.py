"""The version. The build and ``--version`` read it from here without importing anything else."""

__version__ = "0.2.0"
