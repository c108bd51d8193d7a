"""A run that somebody else started by hand, watched without touching it: ``liverl-tui watch``.

``processes`` finds what runs, ``folder`` what a folder holds; ``replicas``, ``proxy`` and ``ray`` ask servers by GET;
``verdicts`` judges the logs. ``watcher`` makes snapshots of all of it. Files are read through ``mirror``, a private
run directory of links, so that everything which reads a run directory reads them as well.

No process is signalled, and nothing is written outside of that private directory.
"""
