"""The form fields of a take-over from a Debezium connector, and the operator arguments that read them."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from airflow_provider_mysql_cdc.operators.dag_params import ADVANCED


def import_params() -> dict[str, Param]:
    """Return the form fields of a take-over from a Debezium connector."""
    return {
        "dry_run": Param(
            True,
            type=["boolean", "null"],
            title="Dry run",
            description="Only say what would be done: where the stream would begin, what it would leave out, what to "
            "set. Nothing is written.",
        ),
        "confirm": Param(
            None,
            type=["null", "string"],
            title="Confirm",
            description="Without a dry run: type the connector's topic.prefix to confirm the take-over.",
        ),
        "connect_conn_id": _optional(
            "Kafka Connect connection",
            "Connection of type HTTP to the REST interface of Kafka Connect. If empty, offset and topics must not move "
            "for some seconds, and the topic of the offsets is needed.",
        ),
        "offsets_topic": _optional(
            "Topic of the offsets",
            "offset.storage.topic of the worker. If empty, Kafka Connect is asked for the offset (3.6 and later).",
        ),
        "connector_name": _optional("Connector name", "If empty, the name in the connector's JSON.", section=ADVANCED),
        "debezium_history_topic": _optional(
            "Topic of the connector's schema history",
            "If empty, schema.history.internal.kafka.topic of the connector's JSON.",
            section=ADVANCED,
        ),
        "trust_offset": Param(
            False,
            type=["boolean", "null"],
            section=ADVANCED,
            title="Trust the offset",
            description="Take the offset as it is where records do not say their place, as behind a transform: right "
            "if the connector was stopped and not killed.",
        ),
        "ignore_dumps": Param(
            False,
            type=["boolean", "null"],
            section=ADVANCED,
            title="Ignore other readers of the binlog",
            description="Without Kafka Connect: somebody else reads the binlog under the connector's account.",
        ),
    }


def _optional(title: str, description: str, **more: Any) -> Param:
    return Param(None, type=["null", "string"], title=title, description=description, **more)


def import_arguments() -> dict[str, Any]:
    """Return the arguments of ``MySqlCdcImportDebeziumOperator`` that read the form of ``import_params``."""
    flags = {name: f"{{{{ params.{name} or false }}}}" for name in ("trust_offset", "ignore_dumps")}
    texts = ("confirm", "connect_conn_id", "offsets_topic", "connector_name", "debezium_history_topic")
    # An empty box is a dry run: what writes has to be said.
    dry_run = "{{ params.dry_run is not false }}"
    return {"dry_run": dry_run, **flags, **{name: f"{{{{ params.{name} or '' }}}}" for name in texts}}
