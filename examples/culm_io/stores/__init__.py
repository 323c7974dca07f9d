"""Stores that outlive the process, each in a file of SQLite.

`culm_io.stores.bamboo` is for logs, `p2panda` for operations, `ssb` for feeds and `raft` for the
log of a Raft server.
"""
