"""Stateless codecs of the primitives that the protocols share."""
