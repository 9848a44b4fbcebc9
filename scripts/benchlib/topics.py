"""Deleting the topics of a run before the next one begins."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from confluent_kafka.admin import AdminClient, NewTopic
from kit import delete_topics

_FEW = 500
_PATIENCE_S = 900.0


def drop(kafka: str, names: Sequence[str]) -> None:
    """Delete topics, so that the disk holds the rows of one run at a time, and wait until the broker is done with it.

    A broker takes changes of topics one after the other: thousands that are being removed would hold up those that the
    next run makes. One that is made behind them appears when they are gone.

    Args:
        kafka: Bootstrap servers.
        names: The topics.

    Raises:
        RuntimeError: The broker is not done in a quarter of an hour.
    """
    if names:
        delete_topics({"bootstrap.servers": kafka}, *names)
    if len(names) > _FEW:
        _wait_behind(kafka, f"bench-behind-{secrets.token_hex(4)}")


def _wait_behind(kafka: str, name: str) -> None:
    admin, end = AdminClient({"bootstrap.servers": kafka}), time.monotonic() + _PATIENCE_S
    for made in admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=_PATIENCE_S).values():
        made.result()
    while not _has_leader(admin, name):
        if time.monotonic() > end:
            raise RuntimeError(f"the broker has not removed deleted topics within {_PATIENCE_S:.0f} s")
        time.sleep(1)
    delete_topics({"bootstrap.servers": kafka}, name)


def _has_leader(admin: AdminClient, name: str) -> bool:
    """Return whether the broker names a topic with a leader."""
    found = admin.list_topics(timeout=60).topics.get(name)
    return found is not None and any(each.leader >= 0 for each in found.partitions.values())
