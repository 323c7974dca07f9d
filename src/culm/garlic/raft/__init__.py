"""The Raft core: elections, replication, snapshots, membership.  Knows no wire format."""
