import pytest
import sympy as sp

from odekit.errors import InputError
from odekit.problem import read_formula

x, a = sp.symbols("x a")
NAMES = {"x": x, "lambda_": a}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lambda_*x - x**3", a * x - x**3),
        ("-(x + 1/2)", -x - sp.Rational(1, 2)),
        ("exp(-x)*sqrt(2)/pi", sp.exp(-x) * sp.sqrt(2) / sp.pi),
        ("+0.5*abs(x)", 0.5 * sp.Abs(x)),
        ("x**lambda_", x**a),
    ],
)
def test_formulas(text, value):
    assert read_formula(text, NAMES) == value


def test_names_that_python_keeps_for_itself():
    names = {"lambda": a, "x": x, "is": x}
    assert read_formula("lambda*x - lambda**2 + is", names) == a * x - a**2 + x
    assert read_formula("exp(-lambda)", names) == sp.exp(-a)
    with pytest.raises(InputError, match="not allowed"):
        read_formula("(lambda: 1)()", NAMES)
    with pytest.raises(InputError, match="told apart"):
        read_formula("lambda + lambda_", {"lambda": a, "lambda_": x})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("__import__('os').system('true')", "not allowed"),
        ("x.__class__", "not allowed"),
        ("(lambda: 1)()", "not allowed"),
        ("[x for x in (1,)]", "not allowed"),
        ("x if x else 1", "not allowed"),
        ("open('f')", "Unknown function"),
        ("log(x, 2)", "not allowed"),
        ("True", "not allowed"),
        ("'text'", "not allowed"),
        ("1j", "not allowed"),
        ("x ^ 2", r"'\*\*'"),
        ("y + 1", "Unknown name.*'y'"),
        ("x +", "cannot be read"),
        ("", "cannot be read"),
        ("9**9**9**9", "powers of plain numbers"),
        ("2**-1000", "powers of plain numbers"),
        ("1/(x - x)", "divides by zero"),
        ("x" * 30_000, "characters"),
        ("(" * 5_000 + "x" + ")" * 5_000, "cannot be read|nested too deeply"),
        (3, "text in quotes"),
    ],
)
def test_anything_else_is_refused(text, reason):
    with pytest.raises(InputError, match=reason):
        read_formula(text, NAMES)
