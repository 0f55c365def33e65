"""Hypothesis profiles: ``short`` unless ``--hypothesis-profile`` names another, as `make test-all` does."""

from hypothesis import settings

settings.register_profile("full", max_examples=100, deadline=None)
# The same examples in every run, so that a change is what breaks it; `make test-all` draws others each time.
settings.register_profile("short", settings.get_profile("full"), max_examples=30, derandomize=True)
# For continuous integration on further interpreters, which break syntax and libraries but no law.
settings.register_profile("few", settings.get_profile("short"), max_examples=10)
settings.load_profile("short")
