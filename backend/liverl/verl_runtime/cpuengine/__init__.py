"""A replica for machines without a GPU: generates with the trainer's model, in torch, on the CPU.

Nothing here imports verl, so that a replica's process starts in seconds; ``liverl.verl_runtime.cpu``
registers it with verl.
"""
