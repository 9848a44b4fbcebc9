"""Links that Airflow's pages show beside a task: the pipeline's page, Spark, the topic, and the error in the runbook.

Airflow 3 stores each link as an XCom and reads it from there, so a link is there as soon as the task has pushed it,
also while the task is running or deferred. At the end Airflow asks ``get_link`` in the task's process, and stores the
answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.common.compat.sdk import BaseOperatorLink, conf

from airflow_provider_mysql_cdc.cdc.errors import DAG_KINDS, PACKAGE_DAGS, CdcError
from airflow_provider_mysql_cdc.operators.task_error import NamedTaskError, airflow_error

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.hooks.submission import SparkApplication

SECTION = "mysql_cdc"
PAGE = "/mysql-cdc/"
PIPELINE_PAGE = "/mysql-cdc/#/pipelines/{conn_id}"
"""Where the page of a pipeline is, below the address of Airflow (``plugins.page_urls``, which imports operators)."""
RUNBOOK_URL = "https://github.com/airflow-provider-mysql-cdc/airflow-provider-mysql-cdc/blob/main/docs/runbook.md"


class TaskLink(BaseOperatorLink):  # type: ignore[misc]
    """Return what the task has found out about a link; empty when it has none, and Airflow shows no button then."""

    name = ""

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address.

        Args:
            operator: The operator of the task that has ended.
            ti_key: The task instance.
        """
        links: TaskLinks = operator.links
        return links.urls.get(self.xcom_key, "")


class PipelineLink(TaskLink):
    """Lead to the page of the pipeline."""

    name = "Pipeline"


class SparkLink(TaskLink):
    """Lead to the Spark application: the driver's page while it runs, or what ``[mysql_cdc] spark_ui_url`` names."""

    name = "Spark UI"


class TopicLink(TaskLink):
    """Lead to the topic with most of the task's records in a Kafka UI, if ``[mysql_cdc] kafka_ui_url`` names one."""

    name = "Topic"


class RunbookLink(TaskLink):
    """Lead to the row of the runbook about the error that the task has ended with."""

    name = "Runbook"


class TaskLinks:
    """Collect the links of one try of a task.

    Args:
        ti: The task instance; None outside of Airflow.
    """

    def __init__(self, ti: Any = None) -> None:
        self._ti = ti
        self.urls: dict[str, str] = {}

    def show_pipeline(self, conn_id: str) -> None:
        """Add the link to the pipeline's page, at once.

        Args:
            conn_id: Its connection; empty leads to all pipelines, where a task has several.
        """
        base = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
        page = PIPELINE_PAGE.format(conn_id=quote(conn_id, safe="")) if conn_id else PAGE
        self._push(PipelineLink(), base + page)

    def show_application(self, application: SparkApplication) -> None:
        """Add the link to a Spark application, at once.

        Args:
            application: What its driver or spark-submit has said about it.
        """
        template = _option("spark_ui_url")
        known = template and application.id
        url = fill(template, {"application_id": application.id}) if known else application.page
        if url:
            self._push(SparkLink(), url)

    def show_topic(self, prefix: str, counts: Mapping[str, int]) -> None:
        """Add the link to the topic.

        Args:
            prefix: ``topic.prefix``.
            counts: Records by topic.
        """
        from airflow_provider_mysql_cdc.cdc.commit.plan import topic_counts

        template, counts = _option("kafka_ui_url"), topic_counts(counts)
        topic = max(counts, key=lambda name: counts[name], default="")
        if template and (topic or "{topic}" not in template):
            self.urls[TopicLink().xcom_key] = fill(template, {"topic": topic, "topic_prefix": prefix})

    def show_error(self, error: CdcError) -> None:
        """Add the link to the error's row in the runbook.

        Args:
            error: What the task ends with.
        """
        page = _option("runbook_url") or RUNBOOK_URL
        self.urls[RunbookLink().xcom_key] = f"{page}#{type(error).__name__.lower()}"

    def _push(self, link: TaskLink, url: str) -> None:
        if self.urls.get(link.xcom_key) != url:
            self.urls[link.xcom_key] = url
            if self._ti is not None:
                with suppress(Exception):  # Airflow asks for it again at the end; no task fails for a link
                    self._ti.xcom_push(key=link.xcom_key, value=url)


class LinkedTaskMixin:
    """Give an operator its links, and a mapped one names for its tasks; a base class of operators."""

    operator_extra_links: Any = (PipelineLink(), RunbookLink())
    mysql_cdc_conn_id: str
    template_fields: Any
    _links: TaskLinks | None = None

    @property
    def links(self) -> TaskLinks:
        """The links of this try: Airflow executes a copy of the operator for each."""
        if self._links is None:
            self._links = TaskLinks()
        return self._links

    def pre_execute(self, context: Any) -> None:
        """Show the link to the pipeline as soon as the arguments are rendered.

        Args:
            context: Airflow's context.
        """
        self._links = TaskLinks(context["ti"])
        self._links.show_pipeline(str(self.mysql_cdc_conn_id))
        super().pre_execute(context)  # type: ignore[misc]

    @classmethod
    def partial(cls, **arguments: Any) -> Any:
        """Return the operator with some of its arguments, to be expanded; see ``BaseOperator.partial``.

        Tasks that may have connections of their own are named after them, unless ``map_index_template`` says otherwise.

        Args:
            arguments: Arguments that are the same for all mapped tasks.
        """
        if "mysql_cdc_conn_id" not in arguments and "mysql_cdc_conn_id" in cls.template_fields:
            arguments.setdefault("map_index_template", "{{ ti.map_index }} {{ task.mysql_cdc_conn_id }}")
        return super().partial(**arguments)  # type: ignore[misc]

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """End the task with Airflow's exception for an error inside, and with a link to its row in the runbook.

        In a DAG that ``cdc_pipeline`` has made, the error names the DAGs of its pipeline.

        Raises:
            NamedTaskError: There was one.
        """
        try:
            yield
        except (NamedTaskError, CdcError) as raised:
            told = raised.error if isinstance(raised, NamedTaskError) else raised
            error = told.with_dags_of(_stream_of(self))
            self.links.show_error(error)
            if isinstance(raised, NamedTaskError) and error is told:
                raise
            raise airflow_error(error) from raised


def _stream_of(task: Any) -> str:
    """Return what the ids of the DAGs of a task's stream begin with; a DAG of a pipeline has its name as a tag."""
    if task.has_dag():
        for kind in DAG_KINDS:
            name = task.dag.dag_id.removesuffix(f"_{kind}")
            if name != task.dag.dag_id and name in task.dag.tags:
                return str(name)
    return PACKAGE_DAGS


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return an address with values in place of their names in braces.

    Args:
        template: The address.
        values: The values.
    """
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", quote(value, safe=""))
    return template


def _option(name: str) -> str:
    return str(conf.get(SECTION, name, fallback="") or "").strip()
