"""Make the DAGs of a stream: one call, or one entry of a YAML file, for each pipeline or fleet."""

from airflow_provider_mysql_cdc.airflow_version import require_airflow

require_airflow()

from airflow_provider_mysql_cdc.dag_factory.fleet import cdc_fleet  # noqa: E402
from airflow_provider_mysql_cdc.dag_factory.pipeline import cdc_pipeline  # noqa: E402
from airflow_provider_mysql_cdc.dag_factory.pipeline_file import pipelines_from_file  # noqa: E402

__all__ = ["cdc_fleet", "cdc_pipeline", "pipelines_from_file"]
