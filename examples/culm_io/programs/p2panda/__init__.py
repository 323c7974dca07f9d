"""``culm p2panda``: documents that several nodes write and exchange."""
