"""Arguments of a verification, as values or as a template renders them."""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.operate.verify_arguments import parse_request
from airflow_provider_mysql_cdc.cdc.verify.report.verify_request import RepairMode, VerifyRequest

pytestmark = pytest.mark.quick


@for_each(
    ("arguments", "request_"),
    [
        ({}, VerifyRequest()),
        (
            {"tables": '["a.b", " c.d "]', "sample_percent": "0.5", "repair": "dry-run", "examples": "0"},
            VerifyRequest(("a.b", "c.d"), 0.5, RepairMode.DRY_RUN, 0),
        ),
        (
            {"tables": "a.b", "repair": True, "show_values": False},
            VerifyRequest(("a.b",), 100.0, RepairMode.YES, 10, False),
        ),
        ({"repair": False}, VerifyRequest()),
        ({"repair": None}, VerifyRequest()),
        ({"repair": "YES"}, VerifyRequest(repair=RepairMode.YES)),
    ],
)
def test_arguments_come_as_values_or_as_a_template_renders_them(
    arguments: dict[str, Any], request_: VerifyRequest
) -> None:
    assert parse_request(**arguments) == request_


@for_each(
    ("arguments", "what"),
    [
        *(
            ({"sample_percent": value}, "the sample is out of range")
            for value in (0, -1, 100.1, "x", "", None, "nan", True)
        ),
        *(({"examples": value}, "the number of examples") for value in (-1, 101, 1.5, "many", "inf", None)),
        *(({"repair": value}, "is not a way to repair") for value in ("maybe", "dry run", 1)),
        ({"tables": ["a.(b"]}, "a table entry is invalid"),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        parse_request(**arguments)
    assert caught.value.where and not caught.value.can_retry
