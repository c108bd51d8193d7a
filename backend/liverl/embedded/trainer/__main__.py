"""Run by ``python -m liverl.embedded.trainer``."""

import sys

from liverl.embedded.trainer.main import main

if __name__ == "__main__":
    sys.exit(main())
