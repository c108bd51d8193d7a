"""``python -m liverl_tui`` is ``liverl-tui``."""

from liverl_tui.cli.main import main

if __name__ == "__main__":
    main()
