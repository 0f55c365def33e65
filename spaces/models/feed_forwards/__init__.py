"""What transforms each token by itself: one file per feed-forward."""

from forerun.spaces.models.feed_forwards.dense import FeedForward
from forerun.spaces.models.feed_forwards.experts import MixtureOfExperts

__all__ = ["FeedForward", "MixtureOfExperts"]
