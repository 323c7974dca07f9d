"""``culm oxen``: processes that chat over UDP."""
