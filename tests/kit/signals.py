"""Signals over the channel ``airflow``, as an operator sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.operate.send_signal import checked_signal, send_signal


def send(cfg: ConnectorConfig, type_: str, data: Mapping[str, Any] | str = "", id_: str = "") -> str:
    """Check a signal and send it; return its id."""
    signal = checked_signal(cfg, type_, data, id_=id_)
    send_signal(cfg, signal)
    return signal.id
