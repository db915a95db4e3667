"""Each claim gets the lines of a glossary that its letters need."""

from __future__ import annotations

from hypothesis import strategies as st

from odekit.claims import Check, Claim, Property, with_symbols

ANYTHING = Property(lambda: st.fixed_dictionaries({}), lambda _: Check("nothing", 0.0))
GLOSSARY = {r"\\\\lambda|lambda": "lambda: an eigenvalue", r"\bN\b": "N: context length"}


def test_only_letters_that_occur_are_explained_own_lines_first() -> None:
    right = Claim("doe2030.two", "Doe", "N counts", ("N",), ANYTHING)
    one = Claim(
        "doe2030.one", "Doe", "it grows", (r"\lambda t",), ANYTHING, symbols=("t: time",),
        correction=right,
    )  # fmt: skip
    (told,) = with_symbols((one,), GLOSSARY)
    assert told.symbols == ("t: time", "lambda: an eigenvalue")
    assert told.correction is not None
    assert told.correction.symbols == ("N: context length",)
    assert one.symbols == ("t: time",)
