"""Datasets and facets of OpenLineage; imported only when the provider of OpenLineage asks for them.

Names follow the specification of OpenLineage (naming of datasets): ``mysql://host:port`` with ``database.table``, and
``kafka://host:port`` of the first bootstrap server with the topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attr
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    data_quality_assertions_dataset,
    error_message_run,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

from airflow_provider_mysql_cdc.cdc.commit.plan import topic_counts
from airflow_provider_mysql_cdc.cdc.formats.record_topics import table_topic_name
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.operators.task_error import short_text

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.errors import CdcError
    from airflow_provider_mysql_cdc.cdc.operate.data_flow import ColumnFlow, FlowField, TableFlow
    from airflow_provider_mysql_cdc.operators.fleet_outcome import StreamOutcome

KAFKA_PORT = 9092
_SCHEMAS = (
    "https://raw.githubusercontent.com/airflow-provider-mysql-cdc/airflow-provider-mysql-cdc/main/docs/openlineage"
)


@attr.define
class BatchesRunFacet(RunFacet):
    """Say which batches of a stream a task has written.

    Args:
        stream: ``topic.prefix``.
        batches: Number of batches.
        file: Binlog file of the stored offset; None where there is none.
        position: Its position in that file.
        gtids: The GTIDs executed up to there; None without GTIDs.
    """

    stream: str
    batches: int = 0
    file: str | None = None
    position: int | None = None
    gtids: str | None = None

    @staticmethod
    def _get_schema() -> str:
        return f"{_SCHEMAS}/MySqlCdcBatchesRunFacet.json"


@attr.define
class FleetRunFacet(RunFacet):
    """Say what a task has done for each stream of a fleet.

    Args:
        streams: For each stream its name, its state, and what ``BatchesRunFacet`` says, or the name of its error.
    """

    streams: list[dict[str, Any]]

    @staticmethod
    def _get_schema() -> str:
        return f"{_SCHEMAS}/MySqlCdcFleetRunFacet.json"


@attr.define
class ErrorRunFacet(RunFacet):
    """Say why a task has failed and what to do.

    Args:
        name: The error's name, which has a row in the runbook.
        what: What has happened.
        where: Where.
        why: Why.
        remedy: What to do.
        canRetry: Whether a retry can help.
    """

    name: str
    what: str
    where: str = ""
    why: str = ""
    remedy: str = ""
    canRetry: bool = False

    @staticmethod
    def _get_schema() -> str:
        return f"{_SCHEMAS}/MySqlCdcErrorRunFacet.json"


def mysql_namespace(cfg: ConnectorConfig) -> str:
    """Return the namespace of the source's tables.

    Args:
        cfg: The connector's configuration.
    """
    settings = cfg.servers()[0]
    return f"mysql://{_bracketed(settings.host)}:{settings.port}"


def kafka_namespace(cfg: ConnectorConfig) -> str:
    """Return the namespace of the topics: the first bootstrap server, without its protocol.

    Args:
        cfg: The connector's configuration.
    """
    first = str(cfg.kafka_settings().get("bootstrap.servers", "")).split(",")[0].strip()
    host, colon, port = first.rpartition("://")[2].rpartition(":")
    if not colon or "]" in port or (":" in host.strip("[]") and not host.startswith("[")):
        host, port = first.rpartition("://")[2], ""
    return f"kafka://{_bracketed(host)}:{port or KAFKA_PORT}"


def _bracketed(host: str) -> str:
    return f"[{host.strip('[]')}]" if ":" in host else host


def lineage_of_flows(
    cfg: ConnectorConfig | None, flows: Sequence[TableFlow], counts: Mapping[str, int] | None = None
) -> OperatorLineage:
    """Return tables as inputs and topics as outputs.

    Args:
        cfg: The connector's configuration; None where it could not be read, and then there are no flows.
        flows: What went where.
        counts: Records by topic, with topics that no table has; None where nothing was counted.
    """
    lineage: OperatorLineage = OperatorLineage()
    if cfg is None:
        return lineage
    source, target = mysql_namespace(cfg), kafka_namespace(cfg)
    lineage.inputs = [_table_dataset(source, flow) for flow in flows]
    by_topic: dict[str, list[TableFlow]] = defaultdict(list)
    for flow in flows:
        by_topic[flow.topic].append(flow)
    others = (topic for topic, count in topic_counts(counts or {}).items() if count)
    for topic in dict.fromkeys((*by_topic, *others)):
        lineage.outputs.append(_topic_dataset(source, target, topic, by_topic[topic], (counts or {}).get(topic)))
    return lineage


def verified_datasets(
    cfg: ConnectorConfig, summary: Mapping[str, Any], drained: Sequence[InputDataset]
) -> list[InputDataset]:
    """Return what a verification has read: tables and their topics, with the verdicts as assertions about the topics.

    Args:
        cfg: The connector's configuration.
        summary: Counts of the verification (``verdict_totals.bounded_json``).
        drained: The inputs of the drain before it.
    """
    datasets = {(dataset.namespace, dataset.name): dataset for dataset in drained}
    assertions: dict[str, list[data_quality_assertions_dataset.Assertion]] = defaultdict(list)
    for name, verdict in summary["tables"].items():
        if verdict["verdict"] == "not judged":
            continue
        datasets.setdefault((mysql_namespace(cfg), name), InputDataset(mysql_namespace(cfg), name))
        found = ", ".join(f"{count} {kind}" for kind, count in verdict["findings"].items())
        assertions[table_topic_name(cfg, TableId(*name.split(".", 1)))].append(
            data_quality_assertions_dataset.Assertion(
                assertion="equals_source_table",
                success=not verdict["findings"],
                name=name,
                actual=found or "no differences",
                expected="no differences",
            )
        )
    for topic, made in assertions.items():
        facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions=made)
        topic_dataset = InputDataset(kafka_namespace(cfg), topic, inputFacets={"dataQualityAssertions": facet})
        datasets[topic_dataset.namespace, topic] = topic_dataset
    return list(datasets.values())


def batches_facet(stream: str, result: Mapping[str, Any]) -> dict[str, RunFacet]:
    """Return the run facet about the batches of a task.

    Args:
        stream: ``topic.prefix``.
        result: The task's result.
    """
    offset = result.get("offset") or {}
    facet = BatchesRunFacet(
        stream, result.get("batches", 0), offset.get("file"), offset.get("pos"), offset.get("gtids")
    )
    return {"mysqlCdc_batches": facet}


def fleet_facet(outcomes: Sequence[StreamOutcome]) -> dict[str, RunFacet]:
    """Return the run facet about the streams of a fleet.

    Args:
        outcomes: What happened to each.
    """
    return {"mysqlCdc_fleet": FleetRunFacet([_stream_members(outcome) for outcome in outcomes])}


def _stream_members(outcome: StreamOutcome) -> dict[str, Any]:
    offset = outcome.result.get("offset") or {}
    members = {
        "stream": outcome.stream,
        "state": outcome.state,
        "batches": outcome.result.get("batches", 0),
        "file": offset.get("file"),
        "position": offset.get("pos"),
        "gtids": offset.get("gtids"),
        "error": None if outcome.error is None else type(outcome.error).__name__,
    }
    return {name: value for name, value in members.items() if value is not None}


def merged_lineage(parts: Sequence[OperatorLineage]) -> OperatorLineage:
    """Return the lineage of many streams as one; a topic that several write to is there once.

    Args:
        parts: The lineage of each stream.
    """
    merged: OperatorLineage = OperatorLineage()
    merged.inputs = list({(d.namespace, d.name): d for part in parts for d in part.inputs}.values())
    outputs: dict[tuple[str, str], OutputDataset] = {}
    for dataset in (dataset for part in parts for dataset in part.outputs):
        key = (dataset.namespace, dataset.name)
        outputs[key] = _both(outputs[key], dataset) if key in outputs else dataset
    merged.outputs = list(outputs.values())
    return merged


def _both(first: OutputDataset, second: OutputDataset) -> OutputDataset:
    """Return one topic with the records and the columns of two streams, and the fields of the first that has any."""
    facets = {**(second.facets or {}), **(first.facets or {})}
    columns = [_facet(dataset.facets, "columnLineage") for dataset in (first, second)]
    if all(columns):
        facets["columnLineage"] = _both_columns(*columns)
    counts = [_facet(dataset.outputFacets, "outputStatistics") for dataset in (first, second)]
    rows = sum(count.rowCount or 0 for count in counts if count)
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)
    counted: dict[str, OutputDatasetFacet] = {"outputStatistics": statistics} if any(counts) else {}
    return OutputDataset(first.namespace, first.name, facets=facets, outputFacets=counted)


def _both_columns(first: Any, second: Any) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    inputs: dict[str, list[column_lineage_dataset.InputField]] = defaultdict(list)
    for facet in (first, second):
        for name, field in facet.fields.items():
            inputs[name] += field.inputFields
    fields = {name: column_lineage_dataset.Fields(inputFields=found) for name, found in inputs.items()}
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields)


def _facet(facets: Mapping[str, Any] | None, name: str) -> Any:
    return (facets or {}).get(name)


def error_facets(error: CdcError) -> dict[str, RunFacet]:
    """Return the run facets about an error: the one that every consumer knows, and one with its parts.

    Args:
        error: The error.
    """
    parts = ErrorRunFacet(
        type(error).__name__, error.what, error.where, error.why, error.next_step(), canRetry=error.can_retry
    )
    message = error_message_run.ErrorMessageRunFacet(message=short_text(error), programmingLanguage="python")
    return {"mysqlCdc_error": parts, "errorMessage": message}


def _table_dataset(namespace: str, flow: TableFlow) -> InputDataset:
    statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=flow.rows)
    return InputDataset(
        namespace,
        str(flow.table),
        facets=_schema_facet(flow.columns),
        inputFacets={} if flow.rows is None else {"inputStatistics": statistics},
    )


def _topic_dataset(
    source: str, target: str, topic: str, flows: Sequence[TableFlow], records: int | None
) -> OutputDataset:
    fields = _union(field for flow in flows for field in flow.fields)
    facets = _schema_facet(fields)
    columns: dict[str, list[column_lineage_dataset.InputField]] = defaultdict(list)
    for flow in flows:
        for mapping in flow.mapping:
            for field in mapping.fields:
                columns[field].append(_input_field(source, flow.table, mapping))
    if columns:
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
            fields={field: column_lineage_dataset.Fields(inputFields=inputs) for field, inputs in columns.items()}
        )
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=records)
    return OutputDataset(
        target, topic, facets=facets, outputFacets={} if records is None else {"outputStatistics": statistics}
    )


def _input_field(source: str, table: TableId, mapping: ColumnFlow) -> column_lineage_dataset.InputField:
    step = column_lineage_dataset.Transformation(
        type="DIRECT",
        subtype="TRANSFORMATION" if mapping.change else "IDENTITY",
        description=mapping.change,
        masking=mapping.hidden,
    )
    return column_lineage_dataset.InputField(source, str(table), mapping.column, transformations=[step])


def _schema_facet(fields: Sequence[FlowField]) -> dict[str, DatasetFacet]:
    described = schema_dataset.SchemaDatasetFacet(fields=list(map(_schema_field, fields)))
    return {"schema": described} if fields else {}


def _schema_field(field: FlowField) -> schema_dataset.SchemaDatasetFacetFields:
    return schema_dataset.SchemaDatasetFacetFields(
        name=field.name, type=field.type, description=field.doc or None, fields=list(map(_schema_field, field.fields))
    )


def _union(fields: Iterable[FlowField]) -> list[FlowField]:
    """Return fields without repetitions, where several tables share a topic."""
    from airflow_provider_mysql_cdc.cdc.operate.data_flow import FlowField

    merged: dict[str, FlowField] = {}
    for field in fields:
        first = merged.setdefault(field.name, field)
        if first is not field:
            inside = tuple(_union((*first.fields, *field.fields)))
            merged[field.name] = FlowField(first.name, first.type, first.doc, inside)
    return list(merged.values())
