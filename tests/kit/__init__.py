"""What the tests share: servers, pipelines, builders of binlog events, readers of topics, and stand-ins."""
