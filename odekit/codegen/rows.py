"""Sums of short rows as vector instructions.

A loop over 4 to 15 entries is too short for the compiler's own vectoriser: it unrolls it to scalars
first. So generated code hands such rows over whole. Products and sums keep the order in which the
loop would take them, entry by entry, so that the numbers are the loop's own to the last bit.
"""

# Intrinsics are untyped by Numba's interface.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

__all__ = ["LONGEST", "SHORTEST", "add_rows"]

SHORTEST, LONGEST = 2, 32
"""Lengths of rows for which `add_rows` is written; longer loops are vectorised anyway."""

WIDEST = 8
"""Entries in one vector; the compiler splits it where the processor's are shorter."""

_REAL = ir.DoubleType()


@intrinsic(prefer_literal=True)
def add_rows(typing_context, out, at, width, start, start_at, scales, source, first, step):
    """``out[at + i] = start[start_at + i] + sum_k scales[k] source[first + k step + i]``.

    For ``i < width``, a constant; ``start`` may be None for zero. ``scales`` is a tuple of floats;
    the arrays are contiguous float64 vectors, and ``source`` does not overlap the rows written.
    """
    if not isinstance(width, types.IntegerLiteral):
        raise TypingError("add_rows: the width must be a constant")
    size, count, starts = (
        int(width.literal_value),
        len(scales),
        not isinstance(start, types.NoneType),
    )
    signature = types.void(
        out, types.intp, width, start, types.intp, scales, source, types.intp, types.intp
    )

    def build(context, builder, sig, args):
        def data(k):
            return context.make_array(sig.args[k])(context, builder, args[k]).data

        target, rows = data(0), data(6)
        before = data(3) if starts else None
        factors = cgutils.unpack_tuple(builder, args[5], count)

        def spot(base, *parts):
            total = parts[0]
            for part in parts[1:]:
                total = builder.add(total, part)
            return builder.gep(base, [total])

        low = 0
        while low < size:
            lanes = next(w for w in (WIDEST, 4, 2, 1) if w <= size - low)
            shift = ir.Constant(args[1].type, low)
            kind = _REAL if lanes == 1 else ir.VectorType(_REAL, lanes)

            def load(pointer, kind=kind):
                return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=8)

            def spread(number, lanes=lanes, kind=kind):
                if lanes == 1:
                    return number
                lone = builder.insert_element(
                    ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0)
                )
                zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
                return builder.shuffle_vector(lone, ir.Constant(kind, ir.Undefined), zeros)

            total = load(spot(before, args[4], shift)) if starts else None
            for k, factor in enumerate(factors):
                moved = builder.mul(args[8], ir.Constant(args[8].type, k))
                term = builder.fmul(spread(factor), load(spot(rows, args[7], moved, shift)))
                total = term if total is None else builder.fadd(total, term)
            place = builder.bitcast(spot(target, args[1], shift), kind.as_pointer())
            builder.store(total, place, align=8)
            low += lanes
        return context.get_dummy_value()

    return signature, build
