"""Run by ``python -m liverl.embedded.engine``."""

import sys

from liverl.embedded.engine.server import main

if __name__ == "__main__":
    sys.exit(main())
