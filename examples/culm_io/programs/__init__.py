"""The programs of the command ``culm``."""
