"""``culm raft``: a key-value store on several servers."""
