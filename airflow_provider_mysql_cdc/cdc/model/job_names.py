"""Names that the Airflow layer and a Spark job agree on."""

from __future__ import annotations

SPEC_FILE = "job-spec.json"
KEY_VARIABLE = "SPARK_MYSQL_CDC_KEY"
"""Variable with the key of a sealed spec; nothing secret without the file."""
YARN_CREDENTIAL = "mysql-cdc.job-key"
"""Name of the key among an application's credentials on YARN."""
CONNECT_VARIABLE = "SPARK_MYSQL_CDC_CONNECT"
"""Variable with the descriptor of the file from which a driver reads how to reach a Spark Connect server."""
