"""The form of the DAG that pauses, resumes and stops ad-hoc snapshots, and the operator's arguments that read it."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from airflow_provider_mysql_cdc.operators.dag_params import channel_param, choice, operator_arguments

SIGNALS = {
    "pause-snapshot": "reads no further rows until resume-snapshot",
    "resume-snapshot": "continues where it was paused",
    "stop-snapshot": "ends it; rows that were read stay in their topics",
}
"""Types of signals that a run can send, with what they do."""
STOPPED_TABLES = "{{ ({'type': 'incremental', 'data-collections': params.tables} if params.tables else {}) | tojson }}"


def signal_params() -> dict[str, Param]:
    """Return the form fields of a signal to the ad-hoc snapshots of a stream."""
    return {
        "signal": choice("Signal", SIGNALS),
        "tables": Param(
            [],
            type=["array", "null"],
            items={"type": "string", "minLength": 1},
            title="Tables",
            description="Only for stop-snapshot: the tables that are not read further, one database.table or regular "
            'expression per line. Write a name with a dot as "db"."t.x". If empty, all.',
        ),
        **channel_param(),
    }


def signal_arguments() -> dict[str, Any]:
    """Return the arguments of ``MySqlCdcSignalOperator`` that read the form of ``signal_params``."""
    needed = ("mysql_cdc_conn_id", "kafka_conn_id", "schema_registry_conn_id", "properties")
    connections = operator_arguments(spark=False)
    return {
        "signal_type": f"{{{{ params.signal or '{next(iter(SIGNALS))}' }}}}",
        "data": STOPPED_TABLES,
        "channel": "{{ params.channel or 'airflow' }}",
        **{name: connections[name] for name in needed},
    }
