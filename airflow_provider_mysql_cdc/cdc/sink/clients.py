"""Create the Kafka clients: settings that the package requires, that it prefers, and that a user may override.

Choose ``linger.ms`` of a writer's producer: long for records of one partition, short for several partitions.

While one batch of a partition is in flight and the next is ready, librdkafka (2.16) polls without a pause whether it
may send that one (``rd_kafka_toppar_producer_serve`` wakes at once for a ready batch, and then finds that too many
messages are unacknowledged). A batch is ready when it is full, or when its oldest record has waited ``linger.ms``. So
with 10 ms, a broker that answers later than that costs a whole CPU core until it answers.

If all records go to one partition, a producer with a long linger has no ready batch before the answer: the next batch
becomes full at about the time of the answer, or a commit flushes it. If several partitions share the queue, no batch
becomes full, and a long linger would stall the producer; but there the ready batches of other partitions wait for their
turn, and librdkafka does not poll meanwhile.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.config.property_names import scrub
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.connection import Secret
from airflow_provider_mysql_cdc.cdc.sink.client_errors import ClientErrors
from airflow_provider_mysql_cdc.cdc.sink.client_pool import ClientPool, clear_at_fork
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses, client_logger, unwrap_error

SHARED_LINGER_MS, SINGLE_PARTITION_LINGER_MS = 10, 1_000
"""``linger.ms`` for records of several partitions, and of one."""
_SIGNIFICANT_BYTES = 4 << 20
"""Bytes from which a transaction predicts how the next one is distributed over partitions."""
_MAX_SWITCHES = 4


class AdaptiveLinger:
    """Track the partitions that a writer's records go to, and choose ``linger.ms`` of its producer.

    Args:
        single_partition: Whether all records of a transaction are expected to go to one partition.
        fixed: Whether the value must not change, because the user has set it.
    """

    def __init__(self, *, single_partition: bool = False, fixed: bool = False) -> None:
        self._single_partition, self._last_single_partition = single_partition, single_partition
        self._switches_left = 0 if fixed else _MAX_SWITCHES
        self._partitions: set[tuple[str, int]] = set()

    def note_partition(self, topic: str, partition: int) -> None:
        """Note the partition of some records.

        Args:
            topic: Topic name.
            partition: Partition number.
        """
        if len(self._partitions) < 2:
            self._partitions.add((topic, partition))

    def transaction_ended(self, size: int) -> None:
        """Note that a transaction has ended.

        Args:
            size: Bytes of the transaction's keys and values.
        """
        if self._partitions and size >= _SIGNIFICANT_BYTES:
            self._last_single_partition = len(self._partitions) == 1
        self._partitions.clear()

    @property
    def switch_due(self) -> bool:
        """Whether the other ``linger.ms`` would suit the last transaction; False after a few switches."""
        return self._switches_left > 0 and self._last_single_partition != self._single_partition

    def switch(self) -> None:
        """Change to the other ``linger.ms`` if that is due."""
        if self.switch_due:
            self._single_partition, self._switches_left = self._last_single_partition, self._switches_left - 1

    @property
    def linger_ms(self) -> int:
        """Milliseconds that a record waits for others of its batch."""
        return SINGLE_PARTITION_LINGER_MS if self._single_partition else SHARED_LINGER_MS


QUEUE_KBYTES = 3_072
"""Size of a producer's queue in KiB, which bounds its memory unless larger records are allowed.

Three batches: one in flight, the next one, and one that is being filled. With more, librdkafka 2.16 polls for messages
to send without a pause (rd_kafka_toppar_producer_serve wakes at once while messages are left) until a broker answers.
"""
QUEUE_MESSAGES = 100_000
"""Messages in the queue of one producer; each costs about 200 bytes in addition to its content."""
MAX_RECORD_BYTES = 1_048_576
"""Largest record by default: the Java producer's max.request.size, and the brokers' default as well."""

_PREFERRED_PRODUCER: dict[str, Any] = {
    # As for the producers of Kafka Connect: a consumer may lack a codec (kafka-python has none of LZ4's own).
    "compression.type": "none",
    "batch.size": 1_000_000,
    "batch.num.messages": 10_000,
    "message.max.bytes": MAX_RECORD_BYTES,
    "queue.buffering.max.kbytes": QUEUE_KBYTES,
    "queue.buffering.max.messages": QUEUE_MESSAGES,
}
# With other values a record could be lost, duplicated or reordered: they are refused, not silently overridden.
_REQUIRED_PRODUCER: dict[str, tuple[str, ...]] = {
    "acks": ("all", "-1"),
    "request.required.acks": ("all", "-1"),
    "enable.idempotence": ("true",),
    # librdkafka considers a batch that the broker refused as delivered once the next batch to the partition is
    # accepted, and a partition that does not know this producer accepts it: a new partition, or one with a new leader
    # (confluent-kafka-go #921).
    "max.in.flight.requests.per.connection": ("1",),
    "max.in.flight": ("1",),
}
# Names that only one kind of client knows; kafka.* properties are passed to all kinds.
_CONSUMER_ONLY = ("group.id", "auto.offset.reset", "isolation.level", "enable.auto.commit", "fetch.")
_PRODUCER_ONLY = (
    *_PREFERRED_PRODUCER,
    "linger.ms",
    *_REQUIRED_PRODUCER,
    "transactional.id",
    "transaction.timeout.ms",
    "delivery.timeout.ms",
    "message.timeout.ms",
    "partitioner",
    "retries",
)

# A transactional producer sends its first request to a broker that it is not connected to yet; librdkafka 2.16 then
# retries after half a second. The property is not documented, so a later version may not know it.
_EAGER_CONNECTIONS = {"enable.sparse.connections": False}

_ALIASES = {"message.timeout.ms": "delivery.timeout.ms", "queue.buffering.max.ms": "linger.ms"}
"""librdkafka's aliases of the times that ``_limit_times`` shortens."""
_LINGER_DIVISOR = 20
"""``linger.ms`` is at most this fraction of ``delivery.timeout.ms``, unless the user sets it."""
LINGER_NAMES = frozenset({"linger.ms", "queue.buffering.max.ms"})
"""Names under which a user can set ``linger.ms``."""

ErrorCallback = Callable[[KafkaError], None]


def queue_records(settings: Mapping[str, Any]) -> int:
    """Return how many records the queue of a producer holds at most.

    Args:
        settings: Client settings under their librdkafka names.
    """
    return int(_number(settings.get("queue.buffering.max.messages")) or QUEUE_MESSAGES)


def common_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings for every kind of client: addresses, security, and all others that are not producer-only.

    Args:
        settings: Settings under their librdkafka names.
    """
    return {k: v for k, v in settings.items() if k not in _PRODUCER_ONLY and not k.startswith(_CONSUMER_ONLY)}


def producer_settings(
    settings: Mapping[str, Any], transactional_id: str, timeout_ms: int, *, linger_ms: int = SHARED_LINGER_MS
) -> dict[str, Any]:
    """Return the settings of a transactional producer.

    Args:
        settings: User settings under their librdkafka names; they override what the package prefers.
        transactional_id: The writer's transactional id.
        timeout_ms: Milliseconds after which the broker aborts an open transaction.
        linger_ms: ``linger.ms``, unless the user sets it.

    Raises:
        ConfigError: A setting would break exactly-once delivery.
    """
    for name, allowed in _REQUIRED_PRODUCER.items():
        if name in settings and str(settings[name]).lower() not in allowed:
            raise ConfigError(
                f"kafka.{name} must be {allowed[0]}",
                where=f"kafka.{name}={settings[name]}",
                why="with another value events could be lost or duplicated",
                remedy="remove the property",
            )
    user = {k: v for k, v in settings.items() if not k.startswith(_CONSUMER_ONLY) and k != "partitioner"}
    preferred = {**_PREFERRED_PRODUCER, "delivery.timeout.ms": 300_000}
    return {
        **_fit_queue(_limit_times({**preferred, **user}, timeout_ms, linger_ms)),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "max.in.flight.requests.per.connection": 1,
        # The delivery callback handles failures only; reports of success need no Python call.
        "delivery.report.only.error": True,
    }


def plain_producer_settings(settings: Mapping[str, Any], timeout_ms: int) -> dict[str, Any]:
    """Return the settings of an idempotent producer without transactions.

    Args:
        settings: User settings under their librdkafka names.
        timeout_ms: Milliseconds after which an undelivered record fails.

    Raises:
        ConfigError: A setting could lose or duplicate records.
    """
    plain = producer_settings(settings, "", timeout_ms)
    for name in ("transactional.id", "transaction.timeout.ms", "acks", "request.required.acks"):
        plain.pop(name, None)
    return {**plain, "acks": "all", "enable.idempotence": True, "linger.ms": 0}


def _limit_times(settings: Mapping[str, Any], timeout_ms: int, linger_ms: int) -> dict[str, Any]:
    """Return settings whose times fit into the transaction timeout; librdkafka refuses others (rd_kafka_conf_finalize).

    A producer that only fences has a shorter transaction timeout than one that writes, with the same user settings.
    """
    limited = {_ALIASES.get(name, name): value for name, value in settings.items()}
    limited["delivery.timeout.ms"] = _capped(limited["delivery.timeout.ms"], timeout_ms)
    if "socket.timeout.ms" in limited:
        limited["socket.timeout.ms"] = _capped(limited["socket.timeout.ms"], timeout_ms)
    # linger.ms counts towards delivery.timeout.ms.
    if (delivery := _number(limited["delivery.timeout.ms"])) is not None:
        linger = _number(limited.setdefault("linger.ms", min(linger_ms, int(delivery / _LINGER_DIVISOR))))
        if linger is not None and linger >= delivery:
            limited["linger.ms"] = max(0, int(delivery) - 1)
    return {"linger.ms": linger_ms, **limited}


def _fit_queue(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings whose queue can hold the largest record.

    librdkafka refuses a record larger than the queue as if the queue were full, at every retry
    (rd_kafka_curr_msgs_add).
    """
    queue, record = _number(settings["queue.buffering.max.kbytes"]), _number(settings["message.max.bytes"])
    if queue is None or record is None or record <= queue * 1024:
        return dict(settings)
    return {**settings, "queue.buffering.max.kbytes": -int(-record // 1024)}


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None  # the client reports what is wrong with it


def _capped(value: Any, maximum: int) -> Any:
    """Return a time of at most ``maximum`` milliseconds; 0, which means no limit, is replaced as well."""
    number = _number(value)
    if number is None or 0 < number <= maximum:
        return value
    return maximum


def make_producer(
    settings: Mapping[str, Any],
    on_error: ErrorCallback,
    on_undelivered: Callable[[KafkaError, Message], None],
    on_statistics: Callable[[str], None] | None = None,
) -> Producer:
    """Create a producer.

    Args:
        settings: From ``producer_settings``.
        on_error: Called with each error of the whole client.
        on_undelivered: Called with each record that could not be delivered.
        on_statistics: Called with the client's statistics as JSON every ``statistics.interval.ms``, or None.

    Raises:
        ConfigError: librdkafka refuses a setting.
    """
    with_callbacks = {**settings, "error_cb": on_error, "on_delivery": on_undelivered}
    if on_statistics is not None:
        with_callbacks["stats_cb"] = on_statistics
    try:
        return _create(Producer, {**_EAGER_CONNECTIONS, **with_callbacks}, settings)
    except ConfigError:
        return _create(Producer, with_callbacks, settings)


def make_consumer(
    settings: Mapping[str, Any], group: str, on_error: ErrorCallback, *, committed: bool = True
) -> Consumer:
    """Create a consumer that assigns partitions itself and commits no offsets.

    Args:
        settings: User settings.
        group: Consumer group id; no offsets are committed under it.
        on_error: Called with each error of the whole client.
        committed: Whether to skip records that are not committed (read_committed).

    Raises:
        ConfigError: librdkafka refuses a setting.
    """
    required = {
        "group.id": group,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        # A broker answers a fetch at the end of a partition after this time, which delays the end of every read.
        "fetch.wait.max.ms": 20,
        "queued.max.messages.kbytes": 16_384,
        "error_cb": on_error,
    }
    fetch_settings = {name: value for name, value in settings.items() if name.startswith("fetch.")}
    return _create(Consumer, {**common_settings(settings), **required, **fetch_settings}, settings)


class Admin(AdminClient):  # type: ignore[misc]
    """An admin client with the brokers' addresses and its errors, for error messages, and the ids of the brokers.

    Attributes:
        broker_ids: Kept by ``topics.broker_ids``; the client is replaced before they get old (``client_pool``).
    """

    def __init__(self, settings: dict[str, Any], **more: Any) -> None:
        self.where = broker_addresses(settings)
        self.errors = ClientErrors(settings)
        self.broker_ids: tuple[int, ...] = ()
        super().__init__({**settings, "error_cb": self.errors.note}, **more)

    @property
    def has_failed(self) -> bool:
        """Whether it has ever reported an error."""
        return self.errors.any_reported


def make_admin(settings: Mapping[str, Any]) -> Admin:
    """Return an admin client; callers with the same settings share one for a minute.

    Args:
        settings: User settings.

    Raises:
        ConfigError: librdkafka refuses a setting.
    """
    return _ADMIN_POOL.get(settings, lambda: new_admin(settings))


def new_admin(settings: Mapping[str, Any]) -> Admin:
    """Return an admin client that nobody else uses.

    Args:
        settings: User settings.

    Raises:
        ConfigError: librdkafka refuses a setting.
    """
    admin: Admin = _create(Admin, common_settings(settings), settings)
    return admin


_ADMIN_POOL: ClientPool[Admin] = ClientPool()
clear_at_fork(_ADMIN_POOL)
# A client that is garbage in a circle waits for the collector. A child that collects it joins threads which it does not
# have: it hangs or crashes (librdkafka 2.16), and Airflow's listeners fork the process of a task.
os.register_at_fork(after_in_child=gc.freeze)
atexit.register(_ADMIN_POOL.clear)


def _create(kind: Callable[..., Any], client_settings: dict[str, Any], settings: Mapping[str, Any]) -> Any:
    # Secrets are revealed to the library here only.
    revealed = {name: value.reveal() if isinstance(value, Secret) else value for name, value in client_settings.items()}
    try:
        return kind(revealed, logger=client_logger(settings))
    except (KafkaException, ValueError, TypeError) as error:
        why = scrub(unwrap_error(error).str() if isinstance(error, KafkaException) else str(error), settings)
        raise _settings_error(why) from None


def _settings_error(why: str) -> ConfigError:
    if match := _TLS_FILE.search(why):
        what, check = _UNREADABLE[match[1]]
        remedy = f"check that the file exists where the client runs (driver and executors), {check}"
        return ConfigError(f"{what} cannot be read", where=f"kafka.{match[0]}", why=why, remedy=remedy)
    return ConfigError(
        "the Kafka client refuses its settings",
        where="kafka.*",
        why=why,
        remedy="correct or remove the property; librdkafka's CONFIGURATION.md lists the names after kafka.",
    )


_TLS_FILE = re.compile(r"ssl\.(key|certificate|keystore|ca)\.(?:location|pem)")
_UNREADABLE = {
    "key": ("the private key of the client certificate", "and kafka.ssl.key.password"),
    "certificate": ("the client certificate", "and that it is PEM"),
    "keystore": ("the key store of the client certificate", "that it is PKCS#12, and kafka.ssl.keystore.password"),
    "ca": ("the certificate of the authority", "and that it is PEM"),
}
