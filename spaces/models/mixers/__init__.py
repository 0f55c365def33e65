"""Mixers of the tokens of a sequence, as sequences of ``forerun.spaces.models.parts``."""

from forerun.spaces.models.mixers.attention import Attention, Indexer, LatentAttention
from forerun.spaces.models.mixers.compressed import CompressedAttention
from forerun.spaces.models.mixers.convolution import Convolution, Convolutions
from forerun.spaces.models.mixers.linear_attention import GatedDelta, LightningAttention, Mamba2, MatrixLstm
from forerun.spaces.models.mixers.parallel import ParallelMixers
from forerun.spaces.models.mixers.recurrences import GatedRecurrence, Mamba, RwkvTimeMix, ShortConvolution

__all__ = [
    "Attention",
    "CompressedAttention",
    "Convolution",
    "Convolutions",
    "GatedDelta",
    "GatedRecurrence",
    "Indexer",
    "LatentAttention",
    "LightningAttention",
    "Mamba",
    "Mamba2",
    "MatrixLstm",
    "ParallelMixers",
    "RwkvTimeMix",
    "ShortConvolution",
]
