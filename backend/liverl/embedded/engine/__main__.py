"""Run by ``python -m liverl.embedded.engine``."""

from liverl.embedded.engine.server import main

if __name__ == "__main__":
    main()
