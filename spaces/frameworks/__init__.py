"""Profiles of training frameworks, as data."""

from forerun.spaces.frameworks.catalogue import framework_names, load_framework, resolve_framework
from forerun.spaces.frameworks.profile import FrameworkProfile
from forerun.spaces.frameworks.switch_words import settings_text
from forerun.spaces.frameworks.switches import Switch, all_switches, parse_switches, switched

__all__ = [
    "FrameworkProfile",
    "Switch",
    "all_switches",
    "framework_names",
    "load_framework",
    "parse_switches",
    "resolve_framework",
    "settings_text",
    "switched",
]
