"""The batch that a user leaves to the memory of the devices: max/gpu."""

import pytest
from split_cases import graph_setting, split_rows

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.batch import LARGEST, PerDevice, parse_batch
from forerun.spaces.opgraph.split import Split


@pytest.mark.parametrize(("model", "cluster"), [("resnet50", "abci-v100"), ("dlrm-516m", "dgx-a100-80")])
def test_the_largest_batch_fits_and_twice_as_much_does_not(model: str, cluster: str) -> None:
    made = graph_setting(model, cluster, LARGEST, "4").context
    assert isinstance(made.global_batch, PerDevice)
    each = made.global_batch.samples
    fits, twice = split_rows(made, [Split(replicas=2)] * 2, [2 * each, 4 * each])
    assert fits.peak_memory_gib <= fits.memory_limit_gib < twice.peak_memory_gib


def test_the_batch_of_a_request_is_the_number_that_was_chosen() -> None:
    setting = resolve(Request(model="resnet50", cluster="abci-v100", global_batch=parse_batch("max/gpu"), gpus="4"))
    assert setting.request.global_batch == PerDevice(128)
    assert any("128/gpu" in note for note in setting.notes)


def test_transformers_have_no_such_batch() -> None:
    with pytest.raises(RequestError, match="operator graphs"):
        resolve(Request(model="llama3-8b", cluster="dgx-h100", global_batch=LARGEST, gpus="8", seq_len=1024))
