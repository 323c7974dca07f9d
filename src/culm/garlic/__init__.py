"""Garlic Farm: Raft over the wire of JRaft."""
