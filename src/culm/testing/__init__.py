"""Tools that prove machines right, for authors of machines and of drivers.

`spec` is the author's description of a machine, `registry` finds it, and `suite` has the properties
that all machines keep (`campaign` searches for longer); `contents` are for the messages of hostile
peers.  `link`, `mesh`, `cluster` and `network` join machines in memory, under a virtual
`clock` and with any faults you like; `disk` loses unsynced writes; `record` and `transcript`
keep whole conversations.  `stores`, `raft_stores` and `ssb_stores` are suites of tests for stores.
`drive` is the line driver.

Only `suite` needs Hypothesis; nothing here needs pytest.
"""
