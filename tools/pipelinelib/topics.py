"""Delete topics of a test or a measurement."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import existing_topics


def delete_topics(kafka_settings: Mapping[str, Any], *topics: str) -> None:
    """Delete topics, and wait until the broker no longer names them.

    The broker answers before it has heard of the deletion itself: asked at once it may say that the topic is there, and
    a moment later that it is not.
    """
    admin = make_admin(kafka_settings)
    for future in admin.delete_topics(list(topics)).values():
        future.result(30)
    while existing_topics(admin, topics):
        time.sleep(0.02)
