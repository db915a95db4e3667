"""The targets of ``odekit reproduce``: discovered, run in worker processes, written to files.

A derivation package names a tuple of `Target` in the entry-point group ``odekit.derivations``;
odekit finds it there and never imports it by name, so that anybody can publish a derivation.
"""

from odekit.reproduce.run import Outcome, run
from odekit.reproduce.targets import Picture, Target, choose, discover

__all__ = ["Outcome", "Picture", "Target", "choose", "discover", "run"]
