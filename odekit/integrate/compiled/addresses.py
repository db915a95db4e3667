"""Compiled functions as plain addresses.

A loop that takes the right-hand side as a Numba `FunctionType` is compiled once for all fields, but
Numba 0.68 looks such an argument up anew at each call (it unpickles the signature: 50 us each, as
long as a small solve). So loops take the address as an integer, found once, and turn it into a
first-class function inside.
"""

# Intrinsics are untyped by Numba's interface.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from numba import float64, int64, types
from numba.core import cgutils
from numba.extending import intrinsic

RHS_SIGNATURE = types.void(float64, float64[::1], float64[::1], float64[::1])
JACOBIAN_SIGNATURE = types.void(float64, float64[::1], float64[::1], float64[:, ::1])
LOSS_SIGNATURE = types.float64(float64[::1], float64[::1])
_STEPPING = (
    float64[::1], float64[::1], float64[:, ::1], float64[::1], int64[::1], float64[::1],
    float64[::1], float64[:, ::1], float64[:, ::1], float64[:, :, ::1], int64[::1],
)  # fmt: skip
# Loops take the right-hand side's address; then a table, the Jacobian's address, or all of what
# the change between two of them needs; then p, y and the rest of `run.Run`.
LOOP_SIGNATURE = int64(int64, *_STEPPING)
TABLE_SIGNATURE = int64(int64, float64[:, ::1], *_STEPPING)
ROSENBROCK_SIGNATURE = int64(int64, int64, *_STEPPING)
CHANGING_SIGNATURE = int64(int64, int64, int64, float64[:, ::1], *_STEPPING)

# Found once per function (10 us each); forgotten with it.
_addresses: WeakKeyDictionary[Any, dict[int, int]] = WeakKeyDictionary()


def address_of(function: Any, signature: Any = RHS_SIGNATURE) -> int:
    """Address of a compiled Numba function's code for `signature`.

    The caller keeps `function` alive as long as the address is in use.
    """
    known = _addresses.setdefault(function, {})
    kind = id(signature)  # one of the constants above: hashing a Numba type takes 20 us
    if kind not in known:
        compiled = function.get_compile_result(signature)
        name = compiled.fndesc.llvm_func_name
        known[kind] = int(compiled.library.get_pointer_to_function(name))
    return known[kind]


def _caster(signature: Any) -> Any:
    function_type = types.FunctionType(signature)

    @intrinsic
    def cast(typing_context, address):
        def build(context, builder, sig, args):
            function = cgutils.create_struct_proxy(function_type)(context, builder)
            pointer = builder.inttoptr(args[0], context.get_value_type(types.voidptr))
            function.c_addr = pointer
            function.jit_addr = pointer
            function.py_addr = context.get_constant_null(types.voidptr)
            return function._getvalue()

        return function_type(int64), build

    return cast


rhs_at = _caster(RHS_SIGNATURE)
jacobian_at = _caster(JACOBIAN_SIGNATURE)
loss_at = _caster(LOSS_SIGNATURE)
loop_at = _caster(LOOP_SIGNATURE)
table_loop_at = _caster(TABLE_SIGNATURE)
rosenbrock_at = _caster(ROSENBROCK_SIGNATURE)
changing_at = _caster(CHANGING_SIGNATURE)
