"""The request of a verification from the arguments of an operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.operate.snapshot_request import parse_tables
from airflow_provider_mysql_cdc.cdc.verify.group_queue import check_entries
from airflow_provider_mysql_cdc.cdc.verify.report.verify_request import MAX_EXAMPLES, RepairMode, VerifyRequest

_REPAIR_MODES = {
    **{str(mode): mode for mode in RepairMode},
    **dict.fromkeys(("", "none", "false"), RepairMode.NO),
    "true": RepairMode.YES,
}


def parse_request(
    *,
    tables: Sequence[str] | str | None = (),
    sample_percent: Any = 100,
    repair: Any = RepairMode.NO,
    examples: Any = 10,
    show_values: bool = True,
    history: bool = False,
    checksums: bool = True,
) -> VerifyRequest:
    """Return a request from the arguments of an operator.

    Args:
        tables: Names ``database.table``, or regular expressions for them; one, a list, or a list's JSON text.
        sample_percent: Share of the keys that is compared; a number or its text.
        repair: ``no``, ``dry-run`` or ``yes``.
        examples: Examples of each kind of difference, per table; a number or its text.
        show_values: Whether the report holds values of rows.
        history: Whether the events of each key are also checked one after the other.
        checksums: Whether the server adds up checksums of rows where it can; otherwise tasks encode all rows.

    Raises:
        ConfigError: A value is not possible.
    """
    entries = parse_tables(tables)
    check_entries(entries)
    mode = _REPAIR_MODES.get(str(repair).strip().lower())
    if mode is None:
        raise ConfigError(
            f"{repair!r} is not a way to repair", where="repair", remedy="use no, dry-run or yes; nothing was compared"
        )
    sample = _number(sample_percent)
    if not 0 < sample <= 100:
        raise ConfigError(
            "the sample is out of range",
            where=f"sample_percent={sample_percent!r}",
            why="it is the share of the keys that is compared, in percent",
            remedy="use a number above 0 and at most 100; 100 compares all keys",
        )
    count = _number(examples)
    if not (0 <= count <= MAX_EXAMPLES and count == int(count)):
        raise ConfigError(
            "the number of examples is out of range",
            where=f"examples={examples!r}",
            remedy=f"use a whole number from 0 to {MAX_EXAMPLES}",
        )
    return VerifyRequest(tuple(entries), sample, mode, int(count), show_values, history, checksums)


def _number(value: Any) -> float:
    """Return a number; nan for what is none."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan
