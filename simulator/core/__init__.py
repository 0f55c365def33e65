"""The vectorised core: seconds and bytes of every candidate of a table.

Shapes: N candidates, which refer to S pipelines, D replicas and K shards of a layer, each computed once. R runs of
equal stages; S x N stages one by one where stages differ; B blocks as in ``simulator/layer``.
"""
