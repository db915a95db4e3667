"""Peers of the benchmarks: each is found or named as missing, never dropped in silence."""
