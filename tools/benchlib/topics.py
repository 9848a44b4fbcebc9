"""Deleting the topics of a run before the next one begins."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from confluent_kafka.admin import AdminClient, NewTopic
from pipelinelib.topics import delete_topics

_DELETE_BATCH = 500
_DELETE_TIMEOUT_S = 900.0


def delete_topics_and_wait(kafka: str, names: Sequence[str]) -> None:
    """Delete topics, so that the disk holds the rows of one run at a time, and wait until the broker is done with it.

    A broker takes changes of topics one after the other: thousands that are being removed would hold up those that the
    next run makes. A topic that is created after them appears when they are deleted.

    Args:
        kafka: Bootstrap servers.
        names: The topics.

    Raises:
        RuntimeError: The broker is not done in a quarter of an hour.
    """
    if names:
        delete_topics({"bootstrap.servers": kafka}, *names)
    if len(names) > _DELETE_BATCH:
        _wait_for_broker(kafka, f"bench-behind-{secrets.token_hex(4)}")


def _wait_for_broker(kafka: str, name: str) -> None:
    admin, end = AdminClient({"bootstrap.servers": kafka}), time.monotonic() + _DELETE_TIMEOUT_S
    for made in admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=_DELETE_TIMEOUT_S).values():
        made.result()
    while not _has_leader(admin, name):
        if time.monotonic() > end:
            raise RuntimeError(f"the broker has not removed deleted topics within {_DELETE_TIMEOUT_S:.0f} s")
        time.sleep(1)
    delete_topics({"bootstrap.servers": kafka}, name)


def _has_leader(admin: AdminClient, name: str) -> bool:
    """Return whether the broker names a topic with a leader."""
    found = admin.list_topics(timeout=60).topics.get(name)
    return found is not None and any(each.leader >= 0 for each in found.partitions.values())
