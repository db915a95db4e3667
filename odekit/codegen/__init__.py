"""From a vector field to cached machine code."""

from odekit.codegen.compiled_field import CompiledField
from odekit.codegen.compiling import compile
from odekit.codegen.folder import CacheInfo, cache_info, clear_cache
from odekit.codegen.layout import Layout
from odekit.codegen.recipe import load, recall, save

__all__ = [
    "CacheInfo",
    "CompiledField",
    "Layout",
    "cache_info",
    "clear_cache",
    "compile",
    "load",
    "recall",
    "save",
]
