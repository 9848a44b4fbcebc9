"""What a verification has found, and the three ways in which it is told: text, JSON and Airflow's page.

``verify_result`` is what was asked for, ``verify_result`` the one result, frozen, with its JSON. ``verdict_records``
keeps it in the ledger, without the values that ``verdict_records`` takes out. Text, totals, the task's result, asset
events, errors and the page are read off it (``report_text``, ``verdict_totals``).
"""
