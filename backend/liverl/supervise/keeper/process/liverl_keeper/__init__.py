"""The keeper: parent and subreaper of a run's services, holder of its listening sockets.

It runs as a separate program with the standard library only, so that it stays small and outlives the backend. While no
backend runs, services keep their parent, their exit statuses are still collected, and the proxy's port stays bound. It
makes no decisions about services. Clients send one JSON request per line on ``keeper.sock`` and get one answer each:

``hello``                         -> pid, children, listeners
``spawn`` token argv env cwd log fds [umask] [about] -> pid, tick (idempotent: a token is started once; ``about`` is
                                     kept in the child's record, for a backend whose journal is damaged)
``listen`` name host port         -> port (idempotent); the host is a numeric address
``adopt_fd`` name (+ SCM_RIGHTS)  -> takes over a listening socket
``get_fd`` name                   -> answer (+ SCM_RIGHTS)
``forget`` token                  -> drops an ended child's record
``close`` name                    -> closes a listening socket
``kill``                          -> killed; sends SIGKILL to every process of the run, whoever started it, for a
                                     command that cannot wait for a backend
``ends``                          -> empty; sent after the exits of all children that have ended so far
``exit``                          -> ends the keeper; refused while children are running, and then the keeper ends
                                     after the last of them, once no client is connected

Whenever a leader ends, every client is sent ``{"exit": {...}}`` and ``exits/TOKEN.json`` is written.

No client can end or block the keeper. A request that it cannot carry out is answered with ``{"error": ...}``. The
keeper opens nothing that could block it, it never waits for a client, and what it keeps for clients is limited:
requests, answers that nobody reads, descriptors, connections. When connections or descriptors run out, it closes
connections that have never made a valid request, the oldest first.
"""
