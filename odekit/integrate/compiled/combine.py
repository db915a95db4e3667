"""Sums of rows, the other half of an explicit step's cost beside the right-hand side.

The compiler checks at each such loop that no two of up to thirteen rows overlap, takes what is left
of a vector's length entry by entry, and rounds products before it adds them. `combine` knows that
rows of one workspace do not overlap, and multiplies and adds in one rounding where the processor
can. Every entry is rounded alike, whatever its place: equal states stay equal.
"""

# Intrinsics are untyped by Numba's interface.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["combine", "subtract"]

LANES = 8
"""Entries in one vector; the compiler splits it where the processor's are shorter."""

_REAL = ir.DoubleType()
# Without the instruction a fused product would be a library call.
_FUSED = bool(llvm.get_host_cpu_features().get("fma", False)) or "arm64" in (
    llvm.get_process_triple().replace("aarch64", "arm64")
)


def _spread(builder, number, kind):
    """The same number in every lane."""
    if kind is _REAL:
        return number
    nothing, first = ir.Constant(kind, ir.Undefined), ir.Constant(ir.IntType(32), 0)
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(builder.insert_element(nothing, number, first), nothing, zeros)


def _each(builder, length, index, body):
    """Whole vectors first, then what is left in shorter ones: ``body(place, lanes)``."""
    low = ir.Constant(index, 0)
    for lanes in (LANES, 4, 1):
        high = builder.and_(length, ir.Constant(index, -lanes))
        step = ir.Constant(index, lanes)
        with cgutils.for_range_slice(builder, low, high, step, inc=True) as (at, _):
            body(at, lanes)
        low = high


@intrinsic
def _combine(typing_context, work, target, start, scales, rows):
    """``work[target] = start + sum_k scales[k] work[rows[k]]``.

    ``work (m, n)`` is contiguous; ``start (n,)`` is an array or None for zero; ``scales`` and
    ``rows`` are tuples of floats and of row numbers, the target's own among them if need be. Sums
    run in the order of the rows.
    """
    starts = not isinstance(start, types.NoneType)
    rows_type = types.UniTuple(types.intp, len(rows))
    scales_type = types.UniTuple(types.float64, len(scales))
    signature = types.void(work, types.intp, start, scales_type, rows_type)

    def build(context, builder, sig, args):
        table = context.make_array(sig.args[0])(context, builder, args[0])
        index = args[1].type
        length = builder.extract_value(table.shape, 1)
        begun = context.make_array(sig.args[2])(context, builder, args[2]).data if starts else None
        factors = cgutils.unpack_tuple(builder, args[3], len(scales))
        numbers = cgutils.unpack_tuple(builder, args[4], len(rows))
        sources = [builder.gep(table.data, [builder.mul(k, length)]) for k in numbers]
        target_row = builder.gep(table.data, [builder.mul(args[1], length)])

        def body(at, lanes):
            kind = _REAL if lanes == 1 else ir.VectorType(_REAL, lanes)
            name = "llvm.fma.f64" if lanes == 1 else f"llvm.fma.v{lanes}f64"
            fused = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(kind, [kind, kind, kind]), name
            )

            def spot(row):
                return builder.bitcast(builder.gep(row, [at]), kind.as_pointer())

            total = builder.load(spot(begun), align=8) if starts else None
            for factor, row in zip(factors, sources, strict=True):
                values = builder.load(spot(row), align=8)
                if total is None:
                    total = builder.fmul(_spread(builder, factor, kind), values)
                elif _FUSED:
                    total = builder.call(fused, [_spread(builder, factor, kind), values, total])
                else:
                    total = builder.fadd(
                        total, builder.fmul(_spread(builder, factor, kind), values)
                    )
            builder.store(total, spot(target_row), align=8)

        _each(builder, length, index, body)
        return context.get_dummy_value()

    return signature, build


@intrinsic
def _subtract(typing_context, target, scale, source, low, high):
    """``target[low:high] -= scale source[low:high]`` for two vectors that do not overlap."""
    signature = types.void(target, types.float64, source, types.intp, types.intp)

    def build(context, builder, sig, args):
        to = context.make_array(sig.args[0])(context, builder, args[0])
        rows = context.make_array(sig.args[2])(context, builder, args[2])
        index = args[3].type
        length = builder.sub(args[4], args[3])
        starts = [builder.gep(array.data, [args[3]]) for array in (to, rows)]

        def body(at, lanes):
            kind = _REAL if lanes == 1 else ir.VectorType(_REAL, lanes)
            place, other = (
                builder.bitcast(builder.gep(start, [at]), kind.as_pointer()) for start in starts
            )
            product = builder.fmul(_spread(builder, args[1], kind), builder.load(other, align=8))
            builder.store(builder.fsub(builder.load(place, align=8), product), place, align=8)

        _each(builder, length, index, body)
        return context.get_dummy_value()

    return signature, build


# Numba's own class for intrinsics is typed as if it took the typing context, too.
combine: Any = _combine
subtract: Any = _subtract
