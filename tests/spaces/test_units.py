"""Quantities as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.spaces.errors import RequestError
from forerun.spaces.units import (
    format_bytes,
    format_count,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_count,
    parse_flops,
    parse_rate,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (parse_bytes("80GiB"), 80 * 2**30),
        (parse_bytes("141 GB"), 141e9),
        (parse_bytes(12), 12.0),
        (parse_rate("400Gb/s"), 50e9),
        (parse_rate("100Gbps"), 12.5e9),
        (parse_rate("25 Gbit/s"), 3.125e9),
        (parse_rate("450GB/s"), 450e9),
        (parse_rate("3.35TB/s"), 3.35e12),
        (parse_flops("989TFLOP/s"), 989e12),
        (parse_flops("1.5P"), 1.5e15),
        (parse_seconds("3.4us"), 3.4e-6),
        (parse_seconds("2h"), 7200.0),
        (parse_count("15T"), 15e12),
        (parse_count("70.6B"), 70.6e9),
        (parse_count("1_000"), 1000.0),
        (parse_count("1,024"), 1024.0),
        (parse_count("1e9"), 1e9),
    ],
)
def test_parse(value: float, expected: float) -> None:
    assert value == pytest.approx(expected, rel=1e-12)


def test_bits_and_bytes_differ_by_eight() -> None:
    assert parse_rate("8Gb/s") == parse_rate("1GB/s")


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1e999GB", "nan", "12 apples", "1GB/s", "1..2GB", "1" * 99, "0x10"])
def test_sizes_refused(text: str) -> None:
    with pytest.raises(RequestError, match="like 80GiB"):
        parse_bytes(text)


@pytest.mark.parametrize("value", [True, float("inf"), float("nan"), -1, 10**400])
def test_numbers_refused(value: float) -> None:
    with pytest.raises(RequestError):
        parse_rate(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_bytes(79.15 * 2**30), "79.2 GiB"),
        (format_bytes(0), "0 B"),
        (format_rate(450e9), "450 GB/s"),
        (format_rate(6.25e9), "6.25 GB/s"),
        (format_seconds(3.4e-6), "3.4 us"),
        (format_seconds(0.0125), "12.5 ms"),
        (format_seconds(90), "90 s"),
        (format_seconds(7200), "2 h"),
        (format_count(70.6e9), "70.6B"),
        (format_count(999_999), "1M"),
        (format_count(512), "512"),
    ],
)
def test_format(text: str, expected: str) -> None:
    assert text == expected


@given(st.floats(1e3, 1e17))
def test_printed_rates_read_back_to_three_digits(value: float) -> None:
    assert parse_rate(format_rate(value)) == pytest.approx(value, rel=6e-3)


@given(st.floats(1, 1e17))
def test_printed_sizes_read_back_to_three_digits(value: float) -> None:
    assert parse_bytes(format_bytes(value)) == pytest.approx(value, rel=6e-3)
