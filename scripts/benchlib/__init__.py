"""Measurements of whole process trees, and of Debezium beside this provider on the same servers."""
