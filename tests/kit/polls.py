"""How many polls the triggers of an event loop share."""

from __future__ import annotations

import asyncio

from airflow_provider_mysql_cdc.triggers import shared_poll


def active_polls() -> int:
    return len(shared_poll._polls.get(asyncio.get_running_loop(), {}))
