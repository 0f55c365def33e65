"""Mixers of the tokens of a sequence, one file each, as sequences of ``forerun.spaces.models.parts``."""

from forerun.spaces.models.mixers.attention import Attention
from forerun.spaces.models.mixers.compressed import CompressedAttention
from forerun.spaces.models.mixers.convolution import Convolution, Convolutions
from forerun.spaces.models.mixers.delta import GatedDelta
from forerun.spaces.models.mixers.indexer import Indexer
from forerun.spaces.models.mixers.latent import LatentAttention
from forerun.spaces.models.mixers.lightning import LightningAttention
from forerun.spaces.models.mixers.mamba1 import Mamba
from forerun.spaces.models.mixers.mamba2 import Mamba2
from forerun.spaces.models.mixers.mlstm import MatrixLstm
from forerun.spaces.models.mixers.parallel import ParallelMixers
from forerun.spaces.models.mixers.recurrent import GatedRecurrence
from forerun.spaces.models.mixers.rwkv import RwkvTimeMix
from forerun.spaces.models.mixers.short_convolution import ShortConvolution

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
