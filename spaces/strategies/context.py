"""What a strategy is judged against: the facts of model, cluster, workload and framework that legality reads."""

import math
from dataclasses import dataclass

from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.frameworks.profile import FrameworkProfile
from forerun.spaces.models.model import MixtureOfExperts, Model
from forerun.spaces.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One request without its strategy."""

    model: Model
    cluster: Cluster
    workload: Workload
    framework: FrameworkProfile

    @property
    def heads(self) -> int:
        """Largest number that divides the query heads of every layer."""
        return math.gcd(*(layer.attention.heads for layer in self.model.layers))

    @property
    def kv_heads(self) -> int:
        """Largest number that divides the key/value heads of every layer (all heads where keys are latent)."""
        return math.gcd(
            *(
                layer.attention.kv_heads if layer.attention.latent is None else layer.attention.heads
                for layer in self.model.layers
            )
        )

    @property
    def experts(self) -> int:
        """Largest number that divides the experts of every mixture layer; 1 for dense models."""
        counts = [layer.mlp.experts for layer in self.model.layers if isinstance(layer.mlp, MixtureOfExperts)]
        return math.gcd(*counts) if counts else 1

    @property
    def moe(self) -> bool:
        """Whether any layer has routed experts."""
        return any(isinstance(layer.mlp, MixtureOfExperts) for layer in self.model.layers)
