"""The provider's metadata for Airflow.

Airflow calls ``get_provider_info`` in every process that loads providers, so this module imports only the declarations
of the properties.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc import __version__

_PACKAGE = "airflow_provider_mysql_cdc"
_INTEGRATION = "MySQL CDC"
_OPERATORS = ("snapshot", "drain", "fleet", "reset", "signal", "incremental", "verify", "import_debezium")


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
        "hooks": [_modules("hooks", "mysql_cdc", "schema_registry", "spark_submit", "spark_connect")],
        "operators": [_modules("operators", *_OPERATORS)],
        "sensors": [_modules("sensors", "binlog", "incremental")],
        "notifications": ["airflow_provider_mysql_cdc.notifications.stream_notifier.MySqlCdcStreamNotifier"],
        "triggers": [_modules("triggers", "binlog", "fleet", "incremental", "job", "watch")],
        "connection-types": [_connection_type(), _registry_type()],
        "extra-links": [
            f"{_PACKAGE}.operators.extra_links.{name}"
            for name in ("PipelineLink", "SparkLink", "TopicLink", "RunbookLink")
        ],
        "asset-uris": [
            {
                "schemes": ["mysql-cdc"],
                "handler": f"{_PACKAGE}.assets.mysql_cdc.sanitize_uri",
                "factory": f"{_PACKAGE}.assets.mysql_cdc.create_asset",
                "to_openlineage_converter": f"{_PACKAGE}.assets.mysql_cdc.convert_asset_to_openlineage",
            }
        ],
        "config": {"mysql_cdc": {"description": "Settings of the MySQL CDC provider.", "options": _options()}},
    }


def _modules(part: str, *names: str) -> dict[str, Any]:
    return {"integration-name": _INTEGRATION, "python-modules": [f"{_PACKAGE}.{part}.{name}" for name in names]}


def _connection_type() -> dict[str, Any]:
    from airflow_provider_mysql_cdc.cdc.config.form_fields import MYSQL_CDC_FORM, STANDARD_LABELS, conn_fields

    return {
        "connection-type": "mysql_cdc",
        "hook-class-name": f"{_PACKAGE}.hooks.mysql_cdc.MySqlCdcHook",
        "hook-name": _INTEGRATION,
        "ui-field-behaviour": {
            "hidden-fields": [],
            "relabeling": {**STANDARD_LABELS, "schema": "Database of an offset store"},
            "placeholders": {"host": "mysql.example.com, or db1:3306,db2:3306", "port": "3306", "login": "cdc"},
        },
        "conn-fields": conn_fields(MYSQL_CDC_FORM),
    }


def _registry_type() -> dict[str, Any]:
    from airflow_provider_mysql_cdc.cdc.config.form_fields import REGISTRY_FORM, REQUIRED, conn_fields

    return {
        "connection-type": "schema_registry",
        "hook-class-name": f"{_PACKAGE}.hooks.schema_registry.SchemaRegistryHook",
        "hook-name": "Schema registry",
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "port"],
            "relabeling": {"login": "User", "host": f"Address{REQUIRED}"},
            "placeholders": {"host": "https://registry.example.com:8081", "login": "for basic authentication"},
        },
        "conn-fields": conn_fields(REGISTRY_FORM),
    }


def _options() -> dict[str, Any]:
    return {
        "spark_jobs_folder": {
            "description": (
                "Folder with this provider's Spark applications (snapshot_tables.py, drain_binlog.py, "
                "verify_topics.py). If empty, the applications that are installed with the package are used. In "
                "Kubernetes cluster mode, a folder inside the image, for example local:///opt/mysql_cdc."
            ),
            "version_added": __version__,
            "type": "string",
            "example": "/opt/mysql_cdc/spark_jobs",
            "default": "",
        },
        "allowed_classes": {
            "description": (
                "Dotted paths of Python classes that the properties of converters may name, comma-separated. Classes "
                "that installed packages list under the entry points airflow_provider_mysql_cdc.converters are allowed "
                "as well, and no others."
            ),
            "version_added": __version__,
            "type": "string",
            "example": "my_package.isbn.IsbnConverter",
            "default": "",
        },
        "kafka_ui_url": {
            "description": (
                "Address of a topic in your Kafka UI, for the link Topic of the tasks: {topic} is replaced by the "
                "topic with most of the task's records, {topic_prefix} by the stream's topic.prefix. If empty, there "
                "is no link."
            ),
            "version_added": __version__,
            "type": "string",
            "example": "https://kafka-ui.example.com/ui/clusters/prod/all-topics/{topic}",
            "default": "",
        },
        "spark_ui_url": {
            "description": (
                "Address of an application in Spark's history server, for the link Spark UI of the tasks: "
                "{application_id} is replaced by its id. If empty, the link leads to the driver's own page, which ends "
                "with the driver."
            ),
            "version_added": __version__,
            "type": "string",
            "example": "https://spark-history.example.com/history/{application_id}/jobs/",
            "default": "",
        },
        "runbook_url": {
            "description": (
                "Address of your copy of docs/runbook.md, for the link Runbook of failed tasks; the name of the error "
                "is appended, as in runbook.md#configerror. If empty, that of the project."
            ),
            "version_added": __version__,
            "type": "string",
            "example": "https://wiki.example.com/mysql-cdc/runbook",
            "default": "",
        },
        "drain_schedule": {
            "description": "Cron expression of the DAG mysql_cdc_drain; none disables its schedule.",
            "version_added": __version__,
            "type": "string",
            "example": "*/15 * * * *",
            "default": "*/5 * * * *",
        },
        "pipeline_schedule": {
            "description": "Cron expression of the DAG mysql_cdc_pipeline; none disables its schedule.",
            "version_added": __version__,
            "type": "string",
            "example": "@hourly",
            "default": "none",
        },
        "verify_schedule": {
            "description": "Cron expression of the DAG mysql_cdc_verify; none disables its schedule.",
            "version_added": __version__,
            "type": "string",
            "example": "@weekly",
            "default": "none",
        },
        "backfill_schedule": {
            "description": (
                "Cron expression of the DAG mysql_cdc_backfill, which defines its data intervals; none disables its "
                "schedule, and Airflow then refuses to backfill the DAG."
            ),
            "version_added": __version__,
            "type": "string",
            "example": "@hourly",
            "default": "@daily",
        },
    }
