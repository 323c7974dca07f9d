"""Tools that prove machines right, for those who write machines and those who drive them.

`machines` is the registry of every machine there is, `suite` the properties that all
of them keep, `driver` the law of driving as a class, `drive` the same over lines of
JSON.  `link`, `cluster` and `network` join machines in memory, under a virtual `clock`
and with any faults you like; `disk` loses what was not synced; `transcript` writes
whole conversations down as text.

Only `suite` needs Hypothesis; nothing here needs pytest.
"""
