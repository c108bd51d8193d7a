"""Finding the replicas that verl starts as Ray actors: by Ray's dashboard REST API, without importing Ray.

``names`` reads actor names, ``rest`` asks the dashboard, ``judge`` decides (pure), ``rpc`` asks the actors for
their addresses through a child of verl's own Python, ``discovery`` does all of it at each look.
"""
