"""A run that somebody else started by hand, watched without touching it: ``liverl-tui watch``.

``processes`` finds what runs, ``engines`` what a trainer has started, ``folder`` what a folder holds, ``launches``
what of it is of the newest launch; ``replicas``, ``proxy``, ``router`` and ``ray`` ask servers by GET; ``verdicts``
judges the logs, ``quiet`` their pace. ``watcher`` makes snapshots of all of it. Files are read through ``mirror``, a
private run directory of links, so that everything which reads a run directory reads them as well.

No process is signalled, and nothing is written outside of that private directory.
"""
