"""Batch-incremental change data capture from MySQL to Kafka for Apache Airflow.

This module imports nothing, so that a Spark executor without Airflow can import ``.cdc`` and ``.spark``.
"""

__version__ = "0.1.0"
