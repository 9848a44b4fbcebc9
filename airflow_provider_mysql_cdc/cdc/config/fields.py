"""All properties, collected from the ``*_fields`` modules that declare them.

A new one goes into the module of its group. Use: ``from airflow_provider_mysql_cdc.cdc.config import fields as F``.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.config import (
    column_fields,
    event_fields,
    registry_fields,
    signal_fields,
    sink_fields,
    source_fields,
    ticdc_fields,
)
from airflow_provider_mysql_cdc.cdc.config.column_fields import *  # noqa: F403  # noqa: F403
from airflow_provider_mysql_cdc.cdc.config.event_fields import *  # noqa: F403
from airflow_provider_mysql_cdc.cdc.config.field import Field
from airflow_provider_mysql_cdc.cdc.config.registry_fields import *  # noqa: F403
from airflow_provider_mysql_cdc.cdc.config.signal_fields import *  # noqa: F403
from airflow_provider_mysql_cdc.cdc.config.sink_fields import *  # noqa: F403  # noqa: F403  # noqa: F403
from airflow_provider_mysql_cdc.cdc.config.source_fields import *  # noqa: F403  # noqa: F403
from airflow_provider_mysql_cdc.cdc.config.ticdc_fields import *  # noqa: F403

ALL: tuple[Field[Any], ...] = tuple(
    dict.fromkeys(
        value
        for module in (
            source_fields,
            source_fields,
            event_fields,
            column_fields,
            sink_fields,
            signal_fields,
            sink_fields,
            column_fields,
            ticdc_fields,
            sink_fields,
        )
        for value in vars(module).values()
        if isinstance(value, Field)
    )
) + tuple(f for part in registry_fields.PARTS for f in registry_fields.CONVERTER_FIELDS[part].all())
BY_NAME: dict[str, Field[Any]] = {f.name: f for f in ALL}
