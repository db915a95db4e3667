"""Runs: records, statuses, continuation, and awkward starts."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from odekit.integrate.compiled.ensemble import solve_members
from odekit.integrate.compiled.run import METHODS, Run
from odekit.integrate.compiled.slots import Code

from .fields import (
    counter,
    decay,
    decay_jacobian,
    heat,
    modes,
    modes_jacobian,
    not_a_number,
    orbit,
    orbit_jacobian,
    square,
)

ALL = sorted(METHODS)
M = 6
SPECTRUM = np.linspace(1.0, 0.2, M)
MODES = np.concatenate([SPECTRUM, 1 + 1 / SPECTRUM])
START = 1e-2 * np.concatenate([1 + 0.1 * np.arange(M), 1.2 + 0.05 * np.arange(M)])


def start(method: str, **changes: object) -> Run:
    settings: dict[str, object] = {
        "rtol": 1e-7, "atol": 1e-10, "jacobian": modes_jacobian,
        "t_out": np.linspace(0.0, 300.0, 41), "autonomous": True,
    }  # fmt: skip
    return Run(method, modes, MODES, 0.0, START, 300.0, **{**settings, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ALL)
def test_recorded_run_is_bitwise_the_plain_run(method: str) -> None:
    plain, recorded = start(method), start(method, record=7)
    assert plain.advance() == Code.DONE
    steps, last_end, last_state = 0, 0.0, START
    while True:
        code = recorded.advance()
        for k in range(recorded.recorded):
            t0, h = recorded.record_times[k]
            assert t0 == pytest.approx(last_end, abs=1e-12 * max(1.0, t0))
            np.testing.assert_allclose(recorded.at(k, 0.0), last_state, rtol=0, atol=1e-14)
            last_end, last_state = t0 + h, recorded.at(k, 1.0)
        steps += recorded.recorded
        if code != Code.RECORD_FULL:
            break
    assert code == Code.DONE
    assert steps == plain.stats["steps"] == recorded.stats["steps"]
    assert np.array_equal(plain.y, recorded.y)
    assert np.array_equal(plain.y_out, recorded.y_out)


@pytest.mark.parametrize("method", ALL)
def test_outputs_at_start_and_end_are_the_states(method: str) -> None:
    run = start(method)
    assert run.advance() == Code.DONE
    assert np.array_equal(run.y_out[0], START)
    assert np.array_equal(run.y_out[-1], run.y)
    assert run.filled == 41


@pytest.mark.parametrize("method", ALL)
def test_nan_is_one_status_with_the_partial_run(method: str) -> None:
    run = Run(
        method, not_a_number, np.zeros(1), 0.0, np.zeros(1), 1.0, rtol=1e-6, atol=1e-9,
        jacobian=decay_jacobian, t_out=np.array([0.25, 0.75]),
    )  # fmt: skip
    assert run.advance() == Code.NAN
    assert 0.25 <= run.t <= 0.5
    assert run.filled == 1
    assert run.y_out[0, 0] == pytest.approx(0.25, abs=1e-9)


@pytest.mark.parametrize("method", ["Tsit5", "DOP853", "ROCK4", "explicit"])
@pytest.mark.parametrize("scale", [1.0, 1e-8])
def test_pole_is_a_blow_up_near_its_time(method: str, scale: float) -> None:
    run = Run(
        method,
        square,
        np.zeros(1),
        0.0,
        np.array([scale]),
        2 / scale,
        rtol=1e-8,
        atol=1e-12 * scale,
    )
    assert run.advance() == Code.BLOW_UP
    assert run.t * scale == pytest.approx(1.0, abs=1e-5)


def test_blow_up_limit() -> None:
    run = Run(
        "Tsit5", square, np.zeros(1), 0.0, np.ones(1), 2.0, rtol=1e-8, atol=1e-12, blow_up=1e3
    )
    assert run.advance() == Code.BLOW_UP
    assert run.y[0] > 1e3


@pytest.mark.parametrize("method", ALL)
def test_step_limit_can_be_lifted(method: str) -> None:
    whole, halves = start(method), start(method, max_steps=20)
    whole.advance()
    assert halves.advance() == Code.STEP_LIMIT
    assert 0 < halves.filled < 41
    halves.counts[8] = 10_000_000
    assert halves.advance() == Code.DONE
    assert np.array_equal(whole.y_out, halves.y_out)


@pytest.mark.parametrize("method", ALL)
def test_flag_interrupts_from_another_thread(method: str) -> None:
    # An oscillation that is far from its end after the tenth of a second allowed here.
    run = Run(
        method, orbit, np.zeros(1), 0.0, np.array([1.0, 0.0]), 1e9, rtol=1e-9, atol=1e-12,
        jacobian=orbit_jacobian, max_steps=2**60,
    )  # fmt: skip
    threading.Timer(0.1, lambda: run.flag.__setitem__(0, 1)).start()
    begun = time.monotonic()
    assert run.advance() == Code.INTERRUPTED
    assert time.monotonic() - begun < 5.0
    assert 0.0 < run.t < 1e9


def test_stall_is_told_from_a_pole() -> None:
    run = Run("Tsit5", decay, np.ones(1), 0.0, np.ones(1), 1.0, rtol=1e-9, atol=1e-12, min_step=0.5)
    assert run.advance() == Code.STALLED


def test_stiff_is_reported_and_the_run_goes_on() -> None:
    p = np.array([1e5, 1.0])
    kwargs = {"rtol": 1e-6, "atol": 1e-9, "t_out": np.linspace(0, 10, 21)}
    run = Run(
        "Tsit5", decay, p, 0.0, np.ones(2), 10.0, patience=100, jacobian=decay_jacobian, **kwargs
    )
    assert run.advance() == Code.STIFF
    assert run.stats["spectral_radius"] == pytest.approx(1e5, rel=0.2)
    rest = run.continue_with("Rodas5P", autonomous=True)
    assert rest.advance() == Code.DONE
    assert rest.filled == 21
    assert rest.stats["steps"] < run.stats["steps"] + 500
    np.testing.assert_allclose(rest.y_out[:, 1], np.exp(-kwargs["t_out"]), atol=1e-5)


def test_explicit_takes_turns() -> None:
    n = 30
    y0 = 1e-4 * np.sin(np.arange(1.0, n + 1))
    run = Run("explicit", heat, np.array([50.0]), 0.0, y0, 60.0, rtol=1e-7, atol=1e-12)
    assert run.advance() == Code.DONE
    assert run.stats["switches"] >= 1
    assert 0 < run.stats["stabilised_steps"] < run.stats["steps"]
    # One field value, the same states: plain DOP853 at tighter tolerance.
    other = Run("DOP853", heat, np.array([50.0]), 0.0, y0, 60.0, rtol=1e-10, atol=1e-14)
    assert other.advance() == Code.DONE
    np.testing.assert_allclose(run.y, other.y, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("method", ALL)
def test_tiny_start_leaves_its_plateau(method: str) -> None:
    """x' = z (1 - 2 x z) from 1e-10: leaves at t = log(1e10) or so; exact x z by quadrature."""
    y0 = np.array([1e-10, 1e-10])
    p = np.array([1.0, 2.0])
    times = np.array([20.0, 22.0, 23.0, 24.0, 30.0])
    run = Run(
        method, modes, p, 0.0, y0, 1e6, rtol=1e-8, atol=1e-18, t_out=times,
        jacobian=modes_jacobian, autonomous=True,
    )  # fmt: skip
    assert run.advance() == Code.DONE
    # x = z = g: g' = g (1 - 2 g^2), so g^2 = 1 / (2 + (g0^-2 - 2) exp(-2 t)).
    exact = 1 / np.sqrt(2 + (1e20 - 2) * np.exp(-2 * times))
    np.testing.assert_allclose(run.y_out[:, 0], exact, rtol=1e-5)


@pytest.mark.parametrize("method", ALL)
def test_members_equal_their_single_solves(method: str) -> None:
    rng = np.random.default_rng(0)
    starts = START * rng.uniform(0.5, 2.0, size=(9, 2 * M))
    parameters = MODES * rng.uniform(0.9, 1.1, size=(9, 2 * M))
    times = np.linspace(0.0, 300.0, 11)
    kwargs = {"rtol": 1e-6, "atol": 1e-9, "jacobian": modes_jacobian, "t_out": times}
    done: list[int] = []
    members = solve_members(
        method, modes, parameters, 0.0, starts, 300.0, workers=2, chunk=2, progress=done.append,
        **kwargs,
    )  # fmt: skip
    assert done[-1] == 9
    for k in range(9):
        single = Run(method, modes, parameters[k], 0.0, starts[k], 300.0, **kwargs)
        assert single.advance() == members.codes[k] == Code.DONE
        assert np.array_equal(single.y, members.y[k])
        assert np.array_equal(single.y_out, members.y_out[k])


def test_member_that_fails_changes_no_other() -> None:
    starts = np.array([[0.1], [10.0], [0.2]])
    members = solve_members("Tsit5", square, np.zeros(1), 0.0, starts, 1.0, rtol=1e-8, atol=1e-12)
    assert list(members.codes) == [Code.DONE, Code.BLOW_UP, Code.DONE]
    np.testing.assert_allclose(members.y[[0, 2], 0], [0.1 / 0.9, 0.2 / 0.8], rtol=1e-6)


def test_scratch_in_the_parameters_is_private() -> None:
    p = np.array([1.0, 0.0])
    members = solve_members("Tsit5", counter, p, 0.0, np.ones((4, 1)), 1.0, rtol=1e-6, atol=1e-9)
    run = Run("Tsit5", counter, p, 0.0, np.ones(1), 1.0, rtol=1e-6, atol=1e-9)
    run.advance()
    assert p[1] == 0.0
    assert run.p[1] == run.stats["rhs_calls"]
    assert len(np.unique(members.y)) == 1


def test_flag_ends_an_ensemble() -> None:
    flag = np.ones(1, np.int64)
    members = solve_members(
        "Tsit5", decay, np.ones(1), 0.0, np.ones((5, 1)), 1.0, rtol=1e-6, atol=1e-9, flag=flag
    )
    assert list(members.codes) == [-1] * 5
