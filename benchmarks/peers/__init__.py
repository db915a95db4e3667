"""Peers of the benchmarks: each is found or named as missing, never dropped in silence."""

from benchmarks.peers.registry import PEERS, Peer, missing

__all__ = ["PEERS", "Peer", "missing"]
