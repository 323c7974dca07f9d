"""Stores that outlive the process, for `culm.bamboo` logs."""
