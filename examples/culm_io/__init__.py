"""The I/O of culm: drivers for event loops and sockets, stores on SQLite, the command ``culm``."""

__version__ = "0.3.0.dev0"
