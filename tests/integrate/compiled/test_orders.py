"""Orders, stability and interpolants of the compiled methods, measured."""

from __future__ import annotations

import numpy as np
import pytest

from odekit.integrate.compiled import derive_rock, rodas_table
from odekit.integrate.compiled.rock_table import TABLE
from odekit.integrate.compiled.run import METHODS, Run
from odekit.integrate.compiled.slots import Code
from odekit.integrate.compiled.tsit5 import INTERPOLANT

from .fields import decay, decay_jacobian, heat, pendulum, pendulum_jacobian

Y0 = np.array([1.2, -0.3, 0.7])
T_END = 2.0
STEPS = {"Tsit5": 16, "DOP853": 6, "ROCK4": 16, "Rodas5P": 16}
# Order of the interpolant itself; a step's interior is one power better than its order.
DENSE = {"Tsit5": 4, "DOP853": 7, "ROCK4": 3, "Rodas5P": 4}


def fixed_steps(method: str, steps: int, t_out: np.ndarray) -> np.ndarray:
    """Outputs with `steps` equal steps: tolerances so loose that max_step alone sets the step."""
    run = Run(
        method, pendulum, np.zeros(1), 0.0, Y0, T_END, rtol=1e6, atol=1e6,
        jacobian=pendulum_jacobian, t_out=t_out, first_step=T_END / steps, max_step=T_END / steps,
    )  # fmt: skip
    assert run.advance() == Code.DONE
    assert run.stats["steps"] == steps
    return run.y_out


@pytest.fixture(scope="module")
def exact() -> dict[str, np.ndarray]:
    """States at the end and off the grid, from DOP853 at 1e-13."""
    inside = np.linspace(0.0, T_END, 98)[1:-1]
    out = {}
    for name, times in (("end", np.array([T_END])), ("inside", inside)):
        run = Run(
            "DOP853", pendulum, np.zeros(1), 0.0, Y0, T_END, rtol=1e-13, atol=1e-15, t_out=times
        )
        assert run.advance() == Code.DONE
        out[name] = run.y_out
    out["times"] = inside
    return out


@pytest.mark.parametrize("method", sorted(STEPS))
def test_order_of_the_solution(method: str, exact: dict[str, np.ndarray]) -> None:
    end = np.array([T_END])
    errors = [
        np.abs(fixed_steps(method, STEPS[method] * k, end) - exact["end"]).max() for k in (1, 2, 4)
    ]
    # The finer pair is nearer the asymptotic regime; half a power is left for what is missing.
    assert np.log2(errors[1] / errors[2]) > METHODS[method].order - 0.5, errors


@pytest.mark.parametrize("method", sorted(STEPS))
def test_order_of_the_interpolant(method: str, exact: dict[str, np.ndarray]) -> None:
    errors = [
        np.abs(fixed_steps(method, STEPS[method] * k, exact["times"]) - exact["inside"]).max()
        for k in (1, 2, 4)
    ]
    assert np.log2(errors[1] / errors[2]) > DENSE[method] + 0.5, errors


def test_tsit5_interpolant_ends_in_the_step() -> None:
    # Weights at theta = 1 are the method's own: the published, rounded numbers agree to 1e-14.
    from odekit.integrate.compiled import tsit5

    end = [tsit5.A71, tsit5.A72, tsit5.A73, tsit5.A74, tsit5.A75, tsit5.A76, 0.0]
    np.testing.assert_allclose(INTERPOLANT[0], end, atol=1e-13)


def test_rodas_coefficients_satisfy_their_row_sums() -> None:
    """Nodes and time weights follow from A and C: c = alpha 1, d = (gamma matrix) 1."""
    gamma = rodas_table.GAMMA
    lower = np.zeros((8, 8))
    lower[:, :7] = rodas_table.C
    inverse = np.eye(8) / gamma - lower
    gammas = np.linalg.inv(inverse)
    a = np.zeros((8, 8))
    a[:, :7] = rodas_table.A
    alpha = a @ gammas
    np.testing.assert_allclose(alpha.sum(axis=1), rodas_table.NODES, atol=1e-12)
    np.testing.assert_allclose(gammas.sum(axis=1), rodas_table.TIME, atol=1e-12)


def test_rodas_is_l_stable() -> None:
    """R(z) -> 0 as z -> -infinity and |R| < 1 on the negative axis (Steinebach 2023)."""
    for z in (-1e-2, -1.0, -30.0, -1e3, -1e6, -1e9):
        run = Run(
            "Rodas5P", decay, np.array([-z]), 0.0, np.ones(1), 1.0, rtol=1e6, atol=1e6,
            jacobian=decay_jacobian, first_step=1.0,
        )  # fmt: skip
        assert run.advance() == Code.DONE
        assert run.stats["steps"] == 1
        assert abs(run.y[0]) < 1.0
        if z <= -1e6:
            assert abs(run.y[0]) < 1e-4


@pytest.mark.parametrize("stages", sorted(TABLE))
def test_rock_table(stages: int) -> None:
    """Order conditions of all trees up to order four, and the stability interval."""
    ell, mu, kappa, c, last = TABLE[stages]
    weights = [np.zeros(8)]
    z = -ell * np.linspace(0.0, 1.0, 20 * stages + 1)
    p_old, p_now = np.ones_like(z), np.ones_like(z)
    for k in range(stages - 4):
        before = weights[k - 1] if k else np.zeros(8)
        slope = derive_rock.slope_weights(weights[k])
        weights.append((1 + kappa[k]) * weights[k] - kappa[k] * before + mu[k] * slope)
        p_old, p_now = p_now, mu[k] * z * p_now + (1 + kappa[k]) * p_now - kappa[k] * p_old
    np.testing.assert_allclose([w[0] for w in weights], c, atol=1e-12)
    a21, a31, a32, a41, a42, a43, *b = last
    rows = [[], [a21], [a31, a32], [a41, a42, a43]]
    slopes, linear = [], []
    for row in rows:
        stage = weights[-1] + sum((x * s for x, s in zip(row, slopes, strict=True)), np.zeros(8))
        slopes.append(derive_rock.slope_weights(stage))
        linear.append(z * (p_now + sum(x * s for x, s in zip(row, linear, strict=True))))
    new = weights[-1] + sum(x * s for x, s in zip(b[:4], slopes, strict=True))
    # Relative to 1 / density; sums over up to 94 stages lose a few digits.
    np.testing.assert_allclose(new * derive_rock.DENSITY, 1.0, atol=1e-10)
    r = p_now + sum(x * s for x, s in zip(b[:4], linear, strict=True))
    assert np.abs(r[z < -1.0]).max() < 0.96  # damping 0.95, linear programme to 1e-3 on its grid
    estimate = sum(x * s for x, s in zip(b[4:8], slopes, strict=True))
    estimate = estimate + b[8] * derive_rock.slope_weights(new)
    np.testing.assert_allclose(estimate[:4], 0.0, atol=1e-11)
    assert np.abs(estimate[4:]).max() > 1e-3


def test_rock_steps_beyond_explicit_stability() -> None:
    n = 40
    y0 = 0.5 * np.sin(np.pi * np.arange(1, n + 1) / (n + 1))
    p = np.array([300.0])
    kwargs = {"rtol": 1e-6, "atol": 1e-9}
    rock = Run("ROCK4", heat, p, 0.0, y0, 5.0, **kwargs)
    plain = Run("Tsit5", heat, p, 0.0, y0, 5.0, **kwargs)
    assert rock.advance() == plain.advance() == Code.DONE
    assert rock.stats["rhs_calls"] < plain.stats["rhs_calls"] / 6
    # Exact 4 p0 sin^2(n pi / 2 (n + 1)) and 1 from the source; 1.1 is the safety factor.
    exact = 4 * p[0] * np.sin(n * np.pi / (2 * (n + 1))) ** 2 - 1.0
    assert 0.95 * exact < rock.stats["spectral_radius"] < 1.15 * exact
    np.testing.assert_allclose(rock.y, plain.y, atol=1e-5)
