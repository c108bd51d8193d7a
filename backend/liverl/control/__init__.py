"""The control socket of a run, between its backend and any number of clients on the same machine.

``messages``: the wire format. ``paths``: the place of the socket. ``server``, ``outbox``: the backend's end.
``blocking``, ``client``: clients with plain sockets (for short commands) and with asyncio (for long-lived views).
"""
