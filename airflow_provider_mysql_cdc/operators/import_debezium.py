"""The operator that takes a stream over from a Debezium connector."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow.sdk import Asset, AssetAlias, BaseOperator

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.hooks.kafka_connect import connect_rest
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.operators.arguments import Properties, parse_bool
from airflow_provider_mysql_cdc.operators.asset_events import (
    DEFAULT_ALIAS,
    DEFAULT_ASSET,
    accessor_of,
    add_asset_event,
    reference_alias,
    reference_asset,
    with_offset_asset,
)
from airflow_provider_mysql_cdc.operators.common import (
    MaskedPropertiesMixin,
    merge_properties,
    owner_of,
    task_config,
    with_registry,
)


class MySqlCdcImportDebeziumOperator(MaskedPropertiesMixin, BaseOperator):  # type: ignore[misc]
    """Go on from the offset that a stopped Debezium connector has stored, as ``mysql-cdc import-debezium`` does.

    Args:
        dry_run: Whether to say only what would be done. (templated)
        confirm: The stream's topic.prefix, without ``dry_run``. (templated)
        connect_conn_id: Connection of type ``http`` to Kafka Connect's REST interface, which says whether the connector
            is stopped; None where it cannot be asked. (templated)
        connector_name: The connector's name; None for the one of its JSON. (templated)
        offsets_topic: Topic of the worker's ``offset.storage.topic``; None for what Kafka Connect answers. (templated)
        debezium_history_topic: Topic of the connector's schema history; None for the one of its JSON. (templated)
        trust_offset: As ``--trust-offset`` of the command. (templated)
        ignore_dumps: As ``--ignore-dumps`` of the command. (templated)
        mysql_cdc_conn_id: Connection of type ``mysql_cdc``. (templated)
        kafka_conn_id: Connection of type ``kafka``; None when the first connection's extra names Kafka. (templated)
        schema_registry_conn_id: Connection of type ``schema_registry``, as for ``MySqlCdcSparkOperator``. (templated)
        properties: Connector properties, as for ``MySqlCdcSparkOperator``. (templated)
        run_properties: As for ``MySqlCdcSparkOperator``.
        offset_asset: Asset whose state stores the offset.
        asset_alias: As for ``MySqlCdcSparkOperator``.
        offset_conn_id: Connection of a database that stores the offset instead. (templated)
        kwargs: Arguments of ``BaseOperator``.

    Raises:
        AirflowFailException: A retry will not help; the text names the error and what to do.
        AirflowException: A retry can help.
    """

    template_fields: Sequence[str] = (
        "dry_run",
        "confirm",
        "connect_conn_id",
        "connector_name",
        "offsets_topic",
        "debezium_history_topic",
        "trust_offset",
        "ignore_dumps",
        "mysql_cdc_conn_id",
        "kafka_conn_id",
        "schema_registry_conn_id",
        "offset_conn_id",
        "properties",
    )
    ui_color = "#d9ead3"

    def __init__(
        self,
        *,
        dry_run: bool | str = True,
        confirm: str = "",
        connect_conn_id: str | None = None,
        connector_name: str | None = None,
        offsets_topic: str | None = None,
        debezium_history_topic: str | None = None,
        trust_offset: bool | str = False,
        ignore_dumps: bool | str = False,
        mysql_cdc_conn_id: str = MySqlCdcHook.default_conn_name,
        kafka_conn_id: str | None = None,
        schema_registry_conn_id: str | None = None,
        properties: Properties | Sequence[Properties] | None = None,
        run_properties: Sequence[str] = (),
        offset_asset: Asset | str = DEFAULT_ASSET,
        asset_alias: AssetAlias | str = DEFAULT_ALIAS,
        offset_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.offset_asset = reference_asset(offset_asset, kwargs)
        self.asset_alias = reference_alias(asset_alias, kwargs)
        super().__init__(**kwargs)
        self.dry_run = dry_run
        self.confirm = confirm
        self.connect_conn_id = connect_conn_id
        self.connector_name = connector_name
        self.offsets_topic = offsets_topic
        self.debezium_history_topic = debezium_history_topic
        self.trust_offset = trust_offset
        self.ignore_dumps = ignore_dumps
        self.mysql_cdc_conn_id = mysql_cdc_conn_id
        self.kafka_conn_id = kafka_conn_id
        self.schema_registry_conn_id = schema_registry_conn_id
        self.properties = properties
        self.run_properties = run_properties
        self.offset_conn_id = offset_conn_id

    @classmethod
    def partial(cls, **arguments: Any) -> Any:
        """Return the operator with some of its arguments, to be expanded; see ``BaseOperator.partial``.

        Args:
            arguments: Arguments that are the same for all mapped tasks; ``asset_events`` is always one of them.
        """
        return super().partial(**with_offset_asset(arguments))

    def execute(self, context: Any) -> dict[str, Any]:
        """Take the stream over.

        Returns:
            What was done, or would be, also in the log and pushed as XCom.
        """
        from airflow_provider_mysql_cdc.cdc.debezium.import_request import ConnectorPlaces, import_connector

        with self.naming_errors():
            hook = MySqlCdcHook(self.mysql_cdc_conn_id, self.kafka_conn_id)
            cfg = task_config(self, merge_properties(with_registry(self.properties, self.schema_registry_conn_id)))
            dry_run = parse_bool(self.dry_run, "dry_run")
            if not dry_run and self.confirm != cfg.topic_prefix:
                raise ConfigError(
                    "the take-over is not confirmed",
                    where=f"confirm={self.confirm!r}",
                    why=f"the connection's topic.prefix is {cfg.topic_prefix!r}",
                    remedy="set confirm to the topic.prefix of the connector",
                )
            places = ConnectorPlaces(
                name=self.connector_name or "",
                connect=connect_rest(self.connect_conn_id) if self.connect_conn_id else None,
                offsets_topic=self.offsets_topic or "",
                history_topic=self.debezium_history_topic or "",
            )
            accessor = accessor_of(context, self.offset_asset)
            store = hook.get_offset_store(cfg, accessor=accessor, offset_conn_id=self.offset_conn_id)
            document = import_connector(
                cfg,
                places,
                None if dry_run else store,
                owner_of(context),
                self.log.info,
                trusts_offset=parse_bool(self.trust_offset, "trust_offset"),
                ignores_dumps=parse_bool(self.ignore_dumps, "ignore_dumps"),
            )
            stored = None if dry_run else store.load()
        self.log.info("%s", json.dumps(document, indent=2))
        if stored is not None and stored.committed is not None:
            extra = {"stream": cfg.topic_prefix, "offset": stored.committed.to_json(), "import": True}
            add_asset_event(context, self.asset_alias, self.offset_asset, extra)
        return document
