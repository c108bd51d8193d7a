"""Run by ``python -m liverl.embedded.trainer``."""

from liverl.embedded.trainer.main import main

if __name__ == "__main__":
    main()
