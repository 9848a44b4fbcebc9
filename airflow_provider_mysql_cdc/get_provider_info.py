"""What Airflow asks this package about itself.

Airflow calls ``get_provider_info`` in every process that looks at providers, so this module imports nothing but the
declarations of the properties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc import __version__

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.field import Field

_PACKAGE = "airflow_provider_mysql_cdc"
_INTEGRATION = "MySQL CDC"
# These have a field of Airflow's own in the form: host, port, login and password.
_STANDARD = frozenset({"database.hostname", "database.port", "database.user", "database.password"})


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata in the form of Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "airflow-provider-mysql-cdc",
        "name": _INTEGRATION,
        "description": "Snapshot MySQL tables and drain the binlog into Kafka as Debezium change events, exactly once.",
        "versions": [__version__],
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://dev.mysql.com/doc/refman/9.7/en/binary-log.html",
                "tags": ["service"],
            }
        ],
        "hooks": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [f"{_PACKAGE}.hooks.mysql_cdc", f"{_PACKAGE}.hooks.spark_submit"],
            }
        ],
        "operators": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [f"{_PACKAGE}.operators.snapshot", f"{_PACKAGE}.operators.drain"],
            }
        ],
        "connection-types": [_connection_type()],
        "config": {"mysql_cdc": {"description": "Settings of the MySQL CDC provider.", "options": _options()}},
    }


def _connection_type() -> dict[str, Any]:
    return {
        "connection-type": "mysql_cdc",
        "hook-class-name": f"{_PACKAGE}.hooks.mysql_cdc.MySqlCdcHook",
        "hook-name": _INTEGRATION,
        "ui-field-behaviour": {
            "hidden-fields": ["schema"],
            "relabeling": {"login": "User", "host": "MySQL host", "port": "MySQL port"},
            "placeholders": {"host": "mysql.example.com", "port": "3306", "login": "cdc"},
        },
        "conn-fields": {
            **{field.name: _form_field(field) for field in _form_fields()},
            "kafka_conn_id": {
                "label": "Kafka connection",
                "description": "Id of a connection of type kafka; its extra gives the Kafka client's settings.",
                "schema": {"type": ["string", "null"]},
            },
        },
    }


def _form_fields() -> list[Field[Any]]:
    from airflow_provider_mysql_cdc.cdc.config import fields

    return [field for field in fields.ALL if field.form and field.name not in _STANDARD]


def _form_field(field: Field[Any]) -> dict[str, Any]:
    """Return one property as Airflow's form wants it; an empty field leaves the property to its default."""
    default = "" if field.required or field.secret else field.default_text()
    schema: dict[str, Any] = {"type": ["string", "null"]}
    if field.secret:
        schema["format"] = "password"
    if field.enum is not None:
        schema["enum"] = [None, *(value for value in field.enum if value not in field.refused)]
        schema["values_display"] = {value: f"{value}: {meaning}" for value, meaning in field.enum.items()}
    return {
        "label": field.name + (" (required)" if field.required else ""),
        "description": field.doc + (f" Default: {default}." if default else ""),
        "schema": schema,
    }


def _options() -> dict[str, Any]:
    return {
        "spark_jobs_folder": {
            "description": (
                "Folder with this provider's Spark applications (snapshot_tables.py, drain_binlog.py). "
                "Empty: the ones installed with the package. "
                "In Kubernetes cluster mode a place inside the image, for example local:///opt/mysql_cdc."
            ),
            "version_added": __version__,
            "type": "string",
            "example": "/opt/mysql_cdc/spark_jobs",
            "default": "",
        },
        "drain_schedule": {
            "description": "Cron expression of the DAG mysql_cdc_drain; none: not scheduled.",
            "version_added": __version__,
            "type": "string",
            "example": "*/15 * * * *",
            "default": "*/5 * * * *",
        },
        "pipeline_schedule": {
            "description": "Cron expression of the DAG mysql_cdc_pipeline; none: not scheduled.",
            "version_added": __version__,
            "type": "string",
            "example": "@hourly",
            "default": "none",
        },
    }
