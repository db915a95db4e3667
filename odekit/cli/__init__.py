"""The command line: it parses, calls and prints; the work is done in the rooms it calls."""

from odekit.cli.commands import app
from odekit.cli.entry import main

__all__ = ["app", "main"]
