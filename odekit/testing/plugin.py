"""Pytest plugin: a Hypothesis profile without deadlines, for tests that compile."""

from __future__ import annotations

from typing import Any

import hypothesis


def pytest_configure(config: Any) -> None:
    """Register the profile ``odekit``; load it with ``--hypothesis-profile=odekit``."""
    hypothesis.settings.register_profile("odekit", deadline=None)
