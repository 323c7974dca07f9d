"""Protocols of others as machines: the use of culm's contract, pump and test kit for them.

`foreign.netstrings` is written from scratch; the docs walk through it.  `foreign.http1` puts h11
into a machine, `foreign.websockets` wsproto.
"""
