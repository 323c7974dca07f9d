"""Tools that prove machines right, for those who write machines and those who drive them.

`spec` is what a machine's author says of it once, `registry` where that is found, and `suite` the
properties that all machines keep (`campaign` searches for long); `contents` are for what hostile
peers write.  `link`, `mesh`, `cluster` and `network` join machines in memory, under a virtual
`clock` and with any faults you like; `disk` loses what was not synced; `record` and `transcript`
keep whole conversations.  `stores`, `raft_stores` and `ssb_stores` say what a store has to do.
`drive` is the line driver.

Only `suite` needs Hypothesis; nothing here needs pytest.
"""
