"""TiCDC's Avro protocol: schemas and values of flat rows, topic rules and partition dispatchers (seed 002)."""
