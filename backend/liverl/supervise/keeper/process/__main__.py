"""Start of the keeper: ``python -I -S PATH/OF/THIS/DIRECTORY RUN_DIR``.

Python puts a directory that it runs at the front of ``sys.path``, also with -I, which keeps only the directory of a
script away. So the one name that is in this directory, ``liverl_keeper``, can be imported, and it is no module of the
standard library.

Everything is imported before the keeper serves. A later version may then be installed over these files while it runs.
"""

TYPE_CHECKING = False  # to type checkers it is that of typing, which takes 0.6 MiB

if TYPE_CHECKING:
    from .liverl_keeper.keeper import main
else:
    from liverl_keeper.keeper import main

if __name__ == "__main__":
    main()
