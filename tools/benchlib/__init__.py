"""Measurements of whole process trees, and of Debezium and Flink CDC compared with this provider on the same
servers.
"""
