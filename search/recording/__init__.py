"""Record a training: the traces that ``replay`` and ``improve`` read, without a change of the training script."""

from forerun.search.recording.command import RankRecord, Recording, parse_steps, record
from forerun.search.recording.recorder import Recorder

__all__ = ["RankRecord", "Recorder", "Recording", "parse_steps", "record"]
