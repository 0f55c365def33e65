"""Costs of one layer on one device and microbatch: operators, communication, activations.

Shapes: K distinct shards of a layer (``shard.Shard``); B blocks, which are the kinds of layers (``kinds``), the
embedding and the head, in this order; S pipelines.
"""
