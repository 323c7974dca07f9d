"""Drivers: whatever carries bytes, time and the store's answers to a machine."""
