from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelplane_dagster.kube.quantity import (
    QuantityError,
    canonical,
    format_quantity,
    is_quantity,
    parse_quantity,
)

VALUES = [
    ("0", "0"),
    ("1", "1"),
    ("+1", "1"),
    ("-1", "-1"),
    ("1.", "1"),
    (".5", "0.5"),
    ("007", "7"),
    ("1500m", "1.5"),
    ("1u", "0.000001"),
    ("1n", "0.000000001"),
    ("1k", "1000"),
    ("1M", "1000000"),
    ("1G", "1000000000"),
    ("1T", "1000000000000"),
    ("1P", "1000000000000000"),
    ("1E", "1000000000000000000"),
    ("1E3", "1000"),
    ("1e3", "1000"),
    ("1e+3", "1000"),
    ("25e-1", "2.5"),
    ("1Ki", "1024"),
    ("1Mi", "1048576"),
    ("20Gi", "21474836480"),
    ("1.5Gi", "1610612736"),
    ("1Ti", "1099511627776"),
    ("1Pi", "1125899906842624"),
    ("1Ei", "1152921504606846976"),
    # A binary amount is capped at what fits 63 bits, a decimal one isn't.
    ("8Ei", "9223372036854775807"),
    ("-8Ei", "-9223372036854775807"),
    ("10E", "10000000000000000000"),
    # Less than a nano unit is rounded away from zero, never to nothing.
    ("0.1n", "0.000000001"),
    ("-0.1n", "-0.000000001"),
    ("1.0000000001", "1.000000001"),
    ("0.0001Ki", "0.1024"),
    # More than the 28 digits of Python's usual context, exactly.
    ("12345678901234567890123456789012.123456789", "12345678901234567890123456789012.123456789"),
]

REFUSED = [
    "", " ", " 1", "1 ", "1 Gi", "1K", "1ki", "1KI", "1_000", "1,000", "NaN", "nan", "Infinity", "-inf", "0x10", "1e", "1e+",
    "1e1.5", "1Gi2", "1ee3", "1mi", "1i", "--1", "+-1", "1-", ".", "+", "-", "Ki", "m", "e3", "1.2.3", "1\n", "\uff11", "1e101",
    "1e-101", "1e999999999999", "9" * 65, "1 m", "cpu", "\u0661",
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_a_quantity_has_its_exact_value(text: str, value: str) -> None:
    assert parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", REFUSED)
def test_what_kubernetes_would_not_write_is_refused(text: str) -> None:
    assert not is_quantity(text)
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize(("number", "value"), [(3, "3"), (-2, "-2"), (0.5, "0.5"), (1e21, "1000000000000000000000")])
def test_json_numbers_are_quantities(number: float, value: str) -> None:
    assert parse_quantity(number) == Decimal(value)


@pytest.mark.parametrize("value", [True, None, [], float("nan"), float("inf")])
def test_other_json_values_are_not(value: object) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(value)  # type: ignore[arg-type]  # what a manifest may hold


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("0", "0"), ("0Gi", "0"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("1000m", "1"), ("1500m", "1500m"), ("0.5", "500m"),
        ("1000", "1k"), ("1100", "1100"), ("1000000k", "1G"), ("1e3", "1e3"), ("1e4", "10e3"), ("1023Ki", "1023Ki"),
        ("0.5Ki", "512"), ("0.5Mi", "512Ki"), ("1.3Ki", "1331200m"), ("-1.5Gi", "-1536Mi"), ("40Gi", "40Gi"), ("100u", "100u"),
    ],
)  # fmt: skip
def test_the_canonical_form_is_what_the_api_server_prints(text: str, printed: str) -> None:
    assert canonical(text) == printed


@settings(max_examples=200, deadline=None)
@given(st.integers(-(10**15), 10**15), st.sampled_from(["n", "u", "m", "", "k", "M", "Ki", "Mi", "Gi", "e2", "E-3"]))
def test_the_canonical_form_keeps_the_value(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    assert parse_quantity(canonical(text)) == parse_quantity(text)
    assert canonical(canonical(text)) == canonical(text)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789.+-eEinumkKMGTP _", max_size=12))
def test_any_text_is_a_finite_number_or_a_quantity_error(text: str) -> None:
    try:
        value = parse_quantity(text)
    except QuantityError:
        return
    assert value.is_finite()
    assert parse_quantity(format_quantity(value)) == value
