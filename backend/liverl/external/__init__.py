"""A run that a user's launch script starts (``trainer.kind: command``): its Ray, its LiteLLM proxy, and two repairs.

``ray_cluster`` finds Ray by the process of its dashboard; ``port_holders`` finds the processes that hold the proxy's
port; ``litellm`` reads how the proxy was started and with which configuration; ``model_list`` reads and edits the
replicas in that configuration; ``restart`` stops exactly the processes that hold the port and starts the same command
line again. ``launch_script`` and ``proxy`` watch, ``repair`` carries out commands. No process is identified by its name
alone, and none is stopped that does not hold the port's socket.
"""
