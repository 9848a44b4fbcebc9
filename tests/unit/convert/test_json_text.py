"""JSON text is what Kafka Connect's JsonConverter prints."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.convert.json_text import Float32, dumps, number, quote_or_null


@for_each(
    ("value", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1e10, "1.0E10"), (1e7, "1.0E7"), (9999999.0, "9999999.0"), (0.001, "0.001"),
        (0.0009, "9.0E-4"), (-2.25, "-2.25"), (123.45, "123.45"), (1e22, "1.0E22"), (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"), (float("nan"), '"NaN"'), (float("-inf"), '"-Infinity"'),
        (Float32(0.1), "0.1"), (Float32(16777216), "1.6777216E7"), (Float32(3.4028235e38), "3.4028235E38"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_java_does(value: float, text: str) -> None:
    assert number(value) == text


def test_strings_are_escaped_as_jackson_does() -> None:
    assert dumps('a"\\/\n\t\b\f\r\x00\x1a\x7fé中😀') == '"a\\"\\\\/\\n\\t\\b\\f\\r\\u0000\\u001A\x7fé中\\uD83D\\uDE00"'
    assert quote_or_null(None) == "null"
    assert quote_or_null("") == '""'


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_the_text_reads_back_as_the_value(value: object) -> None:
    assert json.loads(dumps(value)) == value
