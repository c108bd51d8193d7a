"""An environment of Harbor's without containers: the machine's own files, with directories of the trial's own in them.

A package that Harbor's interpreter loads by the path of this file; it imports nothing of liverl.
"""

from .environment import LocalEnvironment

__all__ = ["LocalEnvironment"]
