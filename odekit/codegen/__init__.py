"""From a vector field to cached machine code."""

from odekit.codegen.compiled_field import CompiledField
from odekit.codegen.compiling import compile
from odekit.codegen.layout import Layout

__all__ = ["CompiledField", "Layout", "compile"]
