"""Costs of one layer on one device and microbatch: operators, communication, activations.

Shapes: K distinct ways to cut a layer (``shard.Shard``); B blocks, which are the kinds of layers (``kinds``), then the
embedding, then the head; S pipelines.
"""
