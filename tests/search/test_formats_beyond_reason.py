"""Launch files with numbers beyond reason are refused, or leave a value unknown."""

import ast

import pytest

from forerun.search.formats.python_text import UNKNOWN, _arithmetic
from forerun.search.formats.titan_keys import dealt
from forerun.spaces.errors import RequestError


@pytest.mark.parametrize("left,right", [(10**400, 0.5), (0.5, 10**400), (float("nan"), 1)])
def test_a_script_that_computes_beyond_floats_leaves_the_value_unknown(left: float, right: float) -> None:
    assert _arithmetic(ast.Mult(), left, right) is UNKNOWN
    assert _arithmetic(ast.Mult(), 4, 0.5) == 2


def test_more_stages_than_layers_are_refused_before_they_are_dealt() -> None:
    assert dealt(4, 6, 1, 1) == (0, 1, 1, 1, 1, 0)
    with pytest.raises(RequestError, match="4 layers make at most 6 pipeline stages, but got 2147483648"):
        dealt(4, 1 << 31, 1, 1)
