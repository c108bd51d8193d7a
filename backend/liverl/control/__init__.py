"""The control socket of a run: one backend, any number of clients on the same machine.

``messages`` is the wire format, ``paths`` where the socket lies, ``server`` and ``outbox`` the backend's end,
``blocking`` and ``client`` the two clients (plain sockets for quick commands, asyncio for long-lived views).
"""
