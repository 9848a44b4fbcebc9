"""Shared handling of arguments and errors in the operators of this provider."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError
from airflow_provider_mysql_cdc.hooks.schema_registry import REGISTRY_CONN_ID
from airflow_provider_mysql_cdc.operators.arguments import (
    OPENED_BY_AUTHOR,
    Properties,
    RunValues,
    check_run_arguments,
    expanded_names,
    is_set,
    parse_properties,
    parse_text_map,
)
from airflow_provider_mysql_cdc.operators.extra_links import LinkedTaskMixin
from airflow_provider_mysql_cdc.operators.task_error import airflow_error

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig


def owner_of(context: Any) -> str:
    """Return ``dag_id/run_id/task_id/map_index``, which is the same for every try of a task instance."""
    ti = context["ti"]
    return f"{ti.dag_id}/{ti.run_id}/{ti.task_id}/{getattr(ti, 'map_index', -1)}"


def generation_of(context: Any) -> int:
    """Return a number that changes each time the task instance is cleared; 0 before that.

    Clearing a task instance sets max_tries to its tries so far plus the task's retries; a retry does not change it.
    """
    ti = context["ti"]
    return max(0, int(getattr(ti, "max_tries", 0) or 0) - int(ti.task.retries or 0))


def run_key(context: Any) -> str:
    """Return an id that all tries of a task instance share until it is cleared."""
    return f"{owner_of(context)}#{generation_of(context)}"


def parse_seconds(value: timedelta | float | str | None, argument: str = "run_for") -> float:
    """Return a duration in seconds.

    Args:
        value: The duration as timedelta, number or text in seconds; None and empty text are 0.
        argument: The operator's argument, for the error.

    Raises:
        ConfigError: The value is none of these, or negative.
    """
    try:
        number = value.total_seconds() if isinstance(value, timedelta) else float(value or 0)
        if number < 0:
            raise ValueError("negative")
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{value!r} is not a duration",
            where=argument,
            remedy="use a timedelta or a number of seconds that is not negative",
        ) from error
    return number


def with_registry(properties: Properties | Sequence[Properties] | None, conn_id: str | None) -> list[Properties]:
    """Return the properties of a task with the id of its schema registry connection, as a list of layers.

    Args:
        properties: A mapping, its JSON text, or a list of these.
        conn_id: The connection; None or empty uses the one in the properties.
    """
    return [*_property_layers(properties), {REGISTRY_CONN_ID: conn_id}]


def _property_layers(properties: Properties | Sequence[Properties] | None) -> list[Properties]:
    return [properties or {}] if properties is None or isinstance(properties, (str, Mapping)) else list(properties)


def merge_properties(properties: Properties | Sequence[Properties] | None) -> dict[str, Any]:
    """Return the merged properties of a task: later layers win, and empty values are left out.

    Args:
        properties: A mapping, its JSON text, or a list of these.

    Raises:
        ConfigError: A layer is text that is not a JSON object.
    """
    merged: dict[str, Any] = {}
    for layer in _property_layers(properties):
        merged |= {name: value for name, value in parse_properties(layer).items() if value is not None and value != ""}
    return merged


def task_config(task: Any, properties: Mapping[str, Any], mysql_cdc_conn_id: str | None = None) -> ConnectorConfig:
    """Return the configuration of a task.

    Args:
        task: The operator, with rendered arguments.
        properties: Its properties, merged.
        mysql_cdc_conn_id: The connection; None uses the task's only one.

    Raises:
        ConfigError: A property is wrong or missing, or the run sets a property or an argument that it may not set.
    """
    from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook

    check_run_arguments(task.arguments_from_run, task.run_arguments)
    conn_id = mysql_cdc_conn_id or task.mysql_cdc_conn_id
    hook = MySqlCdcHook(conn_id, task.kafka_conn_id, getattr(task, "replica_conn_id", None) or None)
    return hook.get_config(properties, names_from_run=task.names_from_run, run_properties=task.run_properties)


def trigger_properties(properties: Properties | Sequence[Properties] | None, conn_id: str) -> dict[str, Any]:
    """Return the properties for a trigger, whose arguments Airflow stores and shows.

    Args:
        properties: The operator's argument, rendered.
        conn_id: The connection in which a secret belongs.

    Raises:
        AirflowFailException: A value contains a secret although the property's name does not indicate one.
    """
    from airflow_provider_mysql_cdc.cdc.config.property_names import redact

    merged = merge_properties(properties)
    if leaked := sorted(name for name, value in merged.items() if redact(name, str(value)) != str(value)):
        raise airflow_error(
            ConfigError(
                "the task's properties contain a secret, and Airflow stores and shows these properties",
                where=", ".join(leaked),
                remedy=f"move it into the connection {conn_id} or the Kafka connection, and change the secret",
            )
        )
    return merged


def mask_rendered(properties: Properties | Sequence[Properties] | None) -> None:
    """Make Airflow mask secrets in rendered properties, where they are not allowed, before it stores rendered fields.

    The task refuses them later (``MySqlCdcHook.get_config``), when the UI would already show them.

    Args:
        properties: The operator's argument, rendered.
    """
    from airflow_provider_mysql_cdc.hooks.mysql_cdc import mask_secrets

    with contextlib.suppress(CdcError):
        mask_secrets(merge_properties(properties))


def mask_spark_settings(settings: Any) -> None:
    """Make Airflow mask secrets in rendered settings of Spark, or of a driver's environment.

    By itself Airflow masks members of a mapping under a few names, and nothing in a text.

    Args:
        settings: A mapping, or its JSON text.
    """
    from airflow.sdk.log import mask_secret

    from airflow_provider_mysql_cdc.hooks.spark_settings import holds_secret

    with contextlib.suppress(CdcError):
        for name, value in parse_text_map(settings, "conf").items():
            if value and holds_secret(name):
                mask_secret(value)


REQUIRED_FIELDS = (
    "mysql_cdc_conn_id",
    "mysql_cdc_conn_ids",
    "spark_conn_id",
    "signal_type",
    "channel",
    "kind",
    "offset",
    "confirm",
    "timeout",
)
"""Templated arguments for which the text ``None`` is not replaced by None."""


class MaskedPropertiesMixin(LinkedTaskMixin):
    """Mask secrets in rendered properties before Airflow stores the rendered fields; a base class of operators.

    It also notes which properties and arguments the run sets, as opposed to the author of the DAG (``arguments``).

    A template of a missing value renders as the text ``None``, which becomes None again. A mapped task is rendered by
    ``MappedOperator``, which calls only this method of the unmapped operator.
    """

    properties: Any
    run_properties: Sequence[str]
    run_arguments: Sequence[str] = ()
    template_fields: Sequence[str]
    template_ext: Sequence[str]
    required_fields: Sequence[str] = REQUIRED_FIELDS
    names_from_run: frozenset[str] = frozenset()
    """Properties whose values the run brings; known once the arguments are rendered."""
    author_arguments: frozenset[str] = OPENED_BY_AUTHOR
    """Arguments that a run may not set."""
    arguments_from_run: frozenset[str] = frozenset()
    """Those of them whose values the run brings; known once the arguments are rendered."""

    def _do_render_template_fields(
        self, parent: Any, template_fields: Any, context: Any, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        fields = {field.lstrip("_"): field for field in template_fields}
        expanded = expanded_names(self, context)
        seen_oids |= {id(getattr(self, fields[name])) for name in expanded & fields.keys()}
        run_values = RunValues(jinja_env, tuple(self.template_ext), frozenset(seen_oids))
        given_properties = self.properties
        templated = {name for name, field in fields.items() if run_values.contains(getattr(self, field, None))}
        super()._do_render_template_fields(  # type: ignore[misc]
            parent, template_fields, context, jinja_env, seen_oids
        )
        self.names_from_run = run_values.property_names(given_properties, self.properties)
        self.arguments_from_run = frozenset(
            name
            for name in self.author_arguments & (templated | expanded)
            if is_set(getattr(self, name, None) or getattr(self, f"_{name}", None))
        )
        mask_rendered(self.properties)
        for settings in ("conf", "env_vars"):
            mask_spark_settings(getattr(self, settings, None))
        for name in self.template_fields:
            if name not in self.required_fields and getattr(self, name, None) == "None":
                setattr(self, name, None)
