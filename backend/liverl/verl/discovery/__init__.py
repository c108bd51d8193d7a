"""Finding the replicas that verl starts as Ray actors: by Ray's dashboard REST API, without importing Ray.

``names`` parses actor names, ``ray_rest`` queries the dashboard, ``assess`` decides (pure), ``address_client`` gets
the actors' addresses through a child of verl's own Python, ``discovery`` does all of it each time.
"""
