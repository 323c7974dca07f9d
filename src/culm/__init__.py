"""Sans-IO state machines for peer-to-peer replication protocols."""

__version__ = "0.3.0.dev0"
