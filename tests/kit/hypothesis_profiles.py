"""The profiles of Hypothesis, which property tests without settings of their own follow.

The suite tries the same examples each time; scripts/fuzz sets MYSQL_CDC_HYPOTHESIS=fuzz and new seeds. fuzzing.py
limits the time of an example.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
settings.register_profile("suite", max_examples=60, derandomize=True, deadline=None, suppress_health_check=_SLOW)
settings.register_profile(
    "fuzz",
    max_examples=int(os.environ.get("MYSQL_CDC_FUZZ_EXAMPLES", "2000")),
    deadline=None,
    suppress_health_check=_SLOW,
    print_blob=True,
)
settings.load_profile(os.environ.get("MYSQL_CDC_HYPOTHESIS", "suite"))
