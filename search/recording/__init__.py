"""Recording of traces for ``replay`` and ``improve``, without a change of the training script."""

from forerun.search.recording.command import Recording, parse_steps, record
from forerun.search.recording.recorder import Recorder

__all__ = ["Recorder", "Recording", "parse_steps", "record"]
