"""How many polls the triggers of an event loop share."""

from __future__ import annotations

import asyncio

from airflow_provider_mysql_cdc.triggers import base


def active_polls() -> int:
    return len(base._polls.get(asyncio.get_running_loop(), {}))
