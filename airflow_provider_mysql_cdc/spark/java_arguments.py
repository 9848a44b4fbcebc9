"""How PySpark's driver hands values to Java."""

from __future__ import annotations


def leave_out_numpy() -> None:
    """Leave out NumPy's values among those that are converted for Java; call it before a context is made.

    PySpark asks of each argument whether it is NumPy's, and for the question it imports NumPy, pandas and pyarrow where
    they are installed (``pyspark.sql.types``, Spark 4.3): half a CPU second at each start. A job has no such values.
    """
    from py4j import protocol  # type: ignore[import-untyped]
    from pyspark.sql import types

    of_numpy = types.NumpyScalarConverter, types.NumpyArrayConverter
    # In place: a gateway that is there already has this list.
    protocol.INPUT_CONVERTER[:] = [each for each in protocol.INPUT_CONVERTER if not isinstance(each, of_numpy)]
