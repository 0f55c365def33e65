"""What training frameworks do with the hardware, as data."""

from forerun.spaces.frameworks.catalogue import framework_names, load_framework
from forerun.spaces.frameworks.profile import FrameworkProfile, Legality

__all__ = ["FrameworkProfile", "Legality", "framework_names", "load_framework"]
