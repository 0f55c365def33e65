"""Hypothesis profiles: ``short`` unless ``--hypothesis-profile`` names another, as `make test-all` does.

Tests use one BLAS thread per process, as the command line does: threads that wait for each other take a third of the
processor time of a run on two cores.
"""

import contextlib
import gc
import os
import signal

import pytest
from hypothesis import settings

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before NumPy is imported
    os.environ.setdefault(variable, "1")

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub reads it

# A shell lets jobs in the background ignore SIGINT, nohup SIGHUP: commands that tests start would ignore both, too.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

settings.register_profile("full", max_examples=50, deadline=None)
# The same examples in every run, so that a change is what breaks it; `make test-all` draws others each time.
settings.register_profile("short", settings.get_profile("full"), max_examples=12, derandomize=True)
# For continuous integration on further interpreters, which break syntax and libraries but no law.
settings.register_profile("few", settings.get_profile("short"), max_examples=5)
settings.load_profile("short")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems() -> None:
    """Draw no constants of the product's source, which takes seconds to read and would change the examples."""
    if settings().derandomize:
        with contextlib.suppress(ImportError):
            from hypothesis.internal.conjecture import providers

            providers._get_local_constants = providers.Constants


def pytest_collection_finish() -> None:
    """Keep the collector away from modules and collected tests, which live until the end."""
    gc.collect()
    gc.freeze()
