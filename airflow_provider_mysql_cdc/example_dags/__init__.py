"""DAGs of this package; put ``from airflow_provider_mysql_cdc.example_dags.NAME import dag`` into a DAG file.

With ``[core] load_examples`` Airflow loads all of them.
"""

from airflow_provider_mysql_cdc.airflow_version import require_airflow

require_airflow()
