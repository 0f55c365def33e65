"""Electric power of devices in training, by the parts of a step.

A device that computes draws nearly its power limit, a waiting one a small part of it:

- computing, 0.92 of the limit: `nvidia-smi` while language models are tuned shows 367 of 400 W on an A100 SXM
  (gist bigsnarfdude/960c2d3d) and 275 of 300 W on an RTX A6000 (gist bigsnarfdude/193ee00f);
- waiting, 0.15: the logged power of H100s in the training of OLMo 2 is between 15 % and 85 % of the limit, lowest
  during checkpoints (Morrison et al., arXiv 2503.05804). 85 % is a whole step, so a step with nine tenths of
  computation gives the logged power.

Hosts, network and cooling are additional: the trainings of Olmo 3 count 1.74 times the devices' energy for the data
centre (arXiv 2605.01158); a node of eight H100s of 700 W is rated 1.82 times their power, 10.2 kW (arXiv 2506.14551).
"""

from collections.abc import Mapping

from forerun.spaces.clusters.cluster import Cluster

COMPUTING, WAITING = 0.92, 0.15
"""Shares of the power limit."""
SITE = 1.74
"""Energy of the data centre relative to its devices."""
BUSY_PARTS = frozenset({"compute", "recompute", "optimizer", "forward", "backward", "update"})
"""Parts of a step in which a device computes; in others it waits for data, other devices, or its host."""


def power_limit_w(cluster: Cluster) -> float | None:
    """Return the mean power limit of a cluster's devices in watts; None if a group's limit is unknown."""
    limits = [(group.cluster.device.watts, group.devices) for group in cluster.groups] or [(cluster.device.watts, 1)]
    known = [(watts, devices) for watts, devices in limits if watts is not None]
    if len(known) < len(limits):
        return None
    return sum(watts * devices for watts, devices in known) / sum(devices for _, devices in known)


def mean_power_w(limit_w: float, parts_s: Mapping[str, float]) -> float:
    """Return the mean power of a device in watts over a step under the power limit ``limit_w``.

    ``parts_s``: seconds by part (``TIME_PARTS``, ``PHASES``).

    >>> round(mean_power_w(700, {"compute": 0.9, "data": 0.1}), 1)
    590.1
    """
    busy_s = sum(seconds for part, seconds in parts_s.items() if part in BUSY_PARTS)
    return limit_w * (WAITING + (COMPUTING - WAITING) * busy_s / sum(parts_s.values()))
