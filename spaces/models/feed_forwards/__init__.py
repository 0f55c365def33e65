"""Feed-forward networks, which transform each token independently: one file for each."""

from forerun.spaces.models.feed_forwards.dense import FeedForward
from forerun.spaces.models.feed_forwards.experts import MixtureOfExperts

__all__ = ["FeedForward", "MixtureOfExperts"]
