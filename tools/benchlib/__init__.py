"""Measurements of whole process trees, and of Debezium and Flink CDC beside this provider on the same servers."""
