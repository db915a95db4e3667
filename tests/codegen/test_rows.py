"""Short rows as vector instructions give the loop's own numbers."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from odekit.codegen.rows import LONGEST, SHORTEST, add_rows


def compiled(width: int, start: str) -> object:
    """Three rows of three terms each, at places that overlap no vector's boundary."""
    space: dict[str, object] = {"add_rows": add_rows}
    exec(  # noqa: S102  the width must be a constant of the source
        f"def f(out, a, b, s):\n    for j in range(3):\n        add_rows(out, 5 + {width} * j, "
        f"{width}, {start}, (s[0], -s[1], s[2]), b, j, {width + 1})\n",
        space,
    )
    return njit(space["f"])


@pytest.mark.parametrize("width", [SHORTEST, 3, 7, 8, 9, 15, LONGEST])
@pytest.mark.parametrize("starts", [True, False])
def test_rows_equal_the_loop_to_the_last_bit(width: int, starts: bool) -> None:
    rng = np.random.default_rng(width)
    a, b, s = rng.normal(size=300), rng.normal(size=300), rng.normal(size=3)
    out, expected = np.zeros(300), np.zeros(300)
    compiled(width, "a, 2 + j" if starts else "None, 0")(out, a, b, s)
    for j in range(3):
        for i in range(width):
            terms = [x * b[j + k * (width + 1) + i] for k, x in enumerate((s[0], -s[1], s[2]))]
            total = a[2 + j + i] + terms[0] if starts else terms[0]
            expected[5 + width * j + i] = total + terms[1] + terms[2]
    assert np.array_equal(out, expected)


def test_a_width_that_is_no_constant_is_refused() -> None:
    @njit
    def f(out, n):
        add_rows(out, 0, n, None, 0, (1.0,), out, 8, 0)

    with pytest.raises(TypingError, match="width must be a constant"):
        f(np.zeros(20), 4)
