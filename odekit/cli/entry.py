"""`main`: one exit code and one line for everything that goes wrong."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any, TextIO

import typer

from odekit.cli.commands import app
from odekit.errors import InputError, OdekitError, OdekitWarning

__all__ = ["main"]

# Typer carries its own Click and exports subclasses of the root error, not the root itself.
_ClickError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of the process's own.

    Returns
    -------
    int
        Exit code: 0 on success, 2 on bad input (one line on stderr), 3 on a failed computation, 130
        when interrupted.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", OdekitWarning)
            warnings.showwarning = _show_warning
            code = app(args=arguments, prog_name="odekit", standalone_mode=False)
        return int(code or 0)
    except _ClickError as error:
        return _say(error.format_message(), 2)
    except InputError as error:
        return _say(str(error), 2)
    except OdekitError as error:
        status = getattr(getattr(error, "solution", None), "status", None)
        return _say(str(error), 130 if getattr(status, "name", "") == "interrupted" else 3)
    except OSError as error:  # a file that is not there, a folder that cannot be written
        place = f"{error.filename}: " if error.filename else ""
        return _say(f"{place}{error.strerror or error}", 2)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", 130)


def _say(message: str, code: int) -> int:
    print("odekit: " + " ".join(message.split()), file=sys.stderr)
    return code


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    kind = "" if issubclass(category, OdekitWarning) else f"{category.__name__}: "
    print(f"odekit: warning: {kind}{message}", file=sys.stderr)
