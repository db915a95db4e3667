"""Verdicts recorded for the claims, to be noticed when one changes; none is read by a check."""

VERDICTS: dict[str, str] = {}
