"""Protocols of others as machines: what culm's contract, pump and test kit do for them.

`foreign.netstrings` is written from scratch; the docs walk through it.  `foreign.http1` puts h11
into a machine, `foreign.websockets` wsproto.
"""
