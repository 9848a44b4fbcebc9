"""DAGs of this package; ``from airflow_provider_mysql_cdc.example_dags.NAME import dag`` puts one into a DAG folder.

With ``[core] load_examples`` Airflow shows all of them by itself.
"""

from airflow_provider_mysql_cdc.airflow_version import require_airflow

require_airflow()
