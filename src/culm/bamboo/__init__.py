"""Bamboo logs: entries, links, verification, forks, storage, authoring.

The log format of AljoschaMeyer/bamboo, with either family of hashes.
"""
