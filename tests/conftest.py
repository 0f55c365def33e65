"""Hypothesis profiles: ``short`` unless ``--hypothesis-profile full`` is given, as `make test-all` does."""

from hypothesis import settings

settings.register_profile("full", max_examples=100, deadline=None)
settings.register_profile("short", settings.get_profile("full"), max_examples=30)
settings.load_profile("short")
