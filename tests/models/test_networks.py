"""Attention as linear networks: proved for all sizes, and measured with flat features."""

from __future__ import annotations

import numpy as np
import pytest

import odekit as ok

H, R, D, N = 3, 2, 3, 5
# Sums of at most H R D^4 products each, and runs whose rounding grows with the loss's instability
# by less than two decades: far below this.
ROUNDING = 1e-12


def named(flow, name):
    tensors = (*flow.states, *flow.parameters, *(t for t, _ in flow.definitions))
    return next(t for t in tensors if t.name == name)


def moments_of_the_network(flow, swapped):
    """The cubic moments in place of C, c, y2; swapped: the query's axis first."""
    moments = ok.models.cubic_moments()
    if swapped:
        moments["C"] = ok.einsum("abcd->badc", moments["C"])
        moments["c"] = ok.einsum("ab->ba", moments["c"])
    return {named(flow, name): value for name, value in moments.items()}


PAIRS = {
    "merged": (
        lambda: ok.models.attention_merged(),
        lambda data: (
            ok.models.linear_network(data=data)
            if data == "attention"
            else ok.models.linear_network(features=ok.dims("D D"))
        ),
        {"v": "w2", "U": "W1"},
    ),
    "separate": (
        lambda: ok.models.attention_separate(),
        lambda data: (
            ok.models.convolutional_network(data=data)
            if data == "attention"
            else ok.models.convolutional_network(None, None, *ok.dims("D D"))
        ),
        {"v": "w3", "Q": "W2", "K": "W1"},
    ),
}


@pytest.mark.parametrize("data", ["attention", "moments"])
@pytest.mark.parametrize("kind", PAIRS)
def test_loss_and_flow_are_proved_equal_for_all_sizes(kind, data):
    """Same weights under other names: so equal losses and rates give equal trajectories."""
    attention, network, names = PAIRS[kind]
    flow, twin = attention().flow, network(data).flow
    moments = moments_of_the_network(twin, kind == "separate") if data == "moments" else {}
    renamed = {named(twin, new): named(flow, old) for old, new in names.items()}
    # Lambda of the twin is its own tensor.
    renamed |= {t: named(flow, "Lambda") for t in twin.parameters if t.name == "Lambda"}
    moments = {
        t: m.substitute({p: named(flow, "Lambda") for p in m.tensors() if p.name == "Lambda"})
        for t, m in moments.items()
    }

    def translated(expression):
        return expression.expand().substitute({**renamed, **moments})

    assert (translated(twin.loss) - flow.loss.expand()).expand().is_zero
    for old, new in names.items():
        rate, other = flow.rates[named(flow, old)], twin.rates[named(twin, new)]
        assert (translated(other) - rate.expand()).expand().is_zero, old
    # A wrong pairing is told apart.
    wrong = {**renamed, **{t: 2 * m for t, m in moments.items()}}
    if moments:
        assert not (twin.loss.expand().substitute(wrong) - flow.loss.expand()).expand().is_zero


def sequences(count=40, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, N + 1, D)) * np.sqrt([1.0, 0.6, 0.3])
    w = rng.standard_normal((count, D))
    return x, np.einsum("pnd,pd->pn", x, w)


def flat_features(x, y):
    """``vec(beta x_q^T)`` (P, D^2), beta's index slow."""
    beta = np.einsum("pn,pnd->pd", y[:, :-1], x[:, :-1]) / N
    return (beta[:, :, None] * x[:, -1, None, :]).reshape(len(x), -1)


def states(seed=0, scale=0.3):
    rng = np.random.default_rng(seed)
    return {
        "merged": {
            "v": scale * rng.standard_normal(H),
            "U": scale * rng.standard_normal((H, D, D)),
        },
        "separate": {
            "v": scale * rng.standard_normal(H),
            "K": scale * rng.standard_normal((H, R, D)),
            "Q": scale * rng.standard_normal((H, R, D)),
        },
    }


def as_network(kind, state):
    """The network's weights: flat rows of U for the merged model."""
    if kind == "merged":
        return {"w2": state["v"], "W1": state["U"].reshape(*state["U"].shape[:-2], -1)}
    return {new: state[old] for old, new in PAIRS[kind][2].items()}


def network_of(kind, z, y):
    """The network with the moments of flat features ``vec(beta x_q^T)``, and its parameters."""
    if kind == "merged":
        moments = {"C": z.T @ z / len(z), "c": y @ z / len(z), "y2": float(np.mean(y**2))}
        return ok.models.linear_network(), moments
    z = windows_of_the_query(z).reshape(-1, D, D)
    C = np.einsum("pab,pcd->abcd", z, z) / len(z)
    moments = {"C": C, "c": np.einsum("p,pab->ab", y, z) / len(z), "y2": float(np.mean(y**2))}
    return ok.models.convolutional_network(), moments


def windows_of_the_query(z):
    """The same features with the query's index slow, so that a window runs over beta; flat."""
    return z.reshape(-1, D, D).transpose(0, 2, 1).reshape(-1, D * D)


def strided_convolution(signal, kernel):
    """Convolution (P, L/S) of flat signals (P, L) with a kernel (S,) at stride S."""
    windows = np.lib.stride_tricks.sliding_window_view(signal, len(kernel), axis=-1)
    return windows[:, :: len(kernel)] @ kernel


def test_predictions_of_the_networks_on_flat_features():
    x, y = sequences()
    z = flat_features(x, y)
    state = states()
    v, U = state["merged"].values()
    merged = z @ (v @ U.reshape(H, -1))
    np.testing.assert_allclose(
        merged, [predicted("merged", state["merged"], x[p], y[p]) for p in range(len(x))],
        rtol=0, atol=1e-13,
    )  # fmt: skip
    v, K, Q = state["separate"].values()
    signal = windows_of_the_query(z)
    separate = sum(
        v[h] * sum(strided_convolution(signal, K[h, r]) @ Q[h, r] for r in range(R))
        for h in range(H)
    )
    np.testing.assert_allclose(
        separate, [predicted("separate", state["separate"], x[p], y[p]) for p in range(len(x))],
        rtol=0, atol=1e-13,
    )  # fmt: skip


def predicted(kind, state, x, y):
    beta, query = y[:-1] @ x[:-1] / N, x[-1]
    if kind == "merged":
        return sum(v * beta @ U @ query for v, U in zip(state["v"], state["U"], strict=True))
    return np.einsum("h,hrd,d,hre,e->", state["v"], state["K"], beta, state["Q"], query)


@pytest.mark.parametrize("kind", PAIRS)
def test_loss_and_gradient_on_the_population(kind):
    lam = np.array([[0.9, 0.2, 0.0], [0.2, 0.5, 0.1], [0.0, 0.1, 0.4]])
    attention, params = PAIRS[kind][0]().flow, {"Lambda": lam, "N": N}
    statistics = ok.simulate.population_statistics(lam, N)
    moments = {"C": statistics.C, "c": statistics.c, "y2": statistics.y2}
    network = ok.models.linear_network().flow
    if kind == "separate":
        network = ok.models.convolutional_network().flow
        C = np.reshape(statistics.C, (D,) * 4).transpose(1, 0, 3, 2)
        moments |= {"C": C, "c": np.reshape(statistics.c, (D, D)).T}
    state = states()[kind]
    twin = as_network(kind, state)
    loss = attention.loss_value(state, params)
    assert network.loss_value(twin, moments) == pytest.approx(loss, rel=ROUNDING)
    rates = as_network(kind, attention.evaluate(state, params))
    for name, rate in network.evaluate(twin, moments).items():
        np.testing.assert_allclose(rate, rates[name], rtol=0, atol=ROUNDING * np.abs(rate).max())


@pytest.mark.parametrize("kind", PAIRS)
def test_trajectory_on_a_training_set(kind):
    """Gradient descent of the attention on sequences against Euler steps of the network's flow."""
    x, y = sequences()
    state, lr, steps = states()[kind], 0.02, 400
    at = np.arange(0, steps + 1, 50)
    run = ok.simulate.gradient_descent(
        PAIRS[kind][0](), (x, y), y0=state, lr=lr, steps=steps, save_at=at
    )
    model, moments = network_of(kind, flat_features(x, y), y[:, -1])
    twin = ok.simulate.gradient_descent(
        model, ok.simulate.Population(moments), y0=as_network(kind, state), lr=lr, steps=steps,
        save_at=at,
    )  # fmt: skip
    assert run.loss[-1] < 0.7 * run.loss[0]  # it learns, so the agreement is not of constants
    np.testing.assert_allclose(twin.loss, run.loss, rtol=ROUNDING)
    for name, value in as_network(kind, {n: run[n] for n in state}).items():
        np.testing.assert_allclose(
            twin[name], value, rtol=0, atol=ROUNDING * np.abs(value).max(), err_msg=name
        )


@pytest.mark.parametrize("kind", PAIRS)
def test_trajectory_of_the_flow(kind):
    """The two flows through one integrator at its finest: the same steps up to rounding."""
    x, y = sequences()
    model, moments = network_of(kind, flat_features(x, y), y[:, -1])
    lam = np.diag([1.0, 0.6, 0.3])
    statistics = ok.simulate.population_statistics(lam, N)
    moments |= {"y2": statistics.y2}
    if kind == "merged":
        moments |= {"C": statistics.C, "c": statistics.c}
    else:
        C = np.reshape(statistics.C, (D,) * 4).transpose(1, 0, 3, 2)
        moments |= {"C": C, "c": np.reshape(statistics.c, (D, D)).T}
    state = states()[kind]
    times = np.linspace(0.0, 8.0, 17)
    fine = ok.Tolerance(relative=1e-13, absolute=1e-15)
    options = {"method": "DOP853", "tolerance": fine}
    run = ok.solve(PAIRS[kind][0]().flow, state, times, {"Lambda": lam, "N": N}, **options)
    twin = ok.solve(model.flow, as_network(kind, state), times, moments, **options)
    assert run.loss[-1] < 0.7 * run.loss[0]
    np.testing.assert_allclose(twin.loss, run.loss, rtol=ROUNDING)
    for name, value in as_network(kind, {n: run[n] for n in state}).items():
        np.testing.assert_allclose(
            twin[name], value, rtol=0, atol=ROUNDING * np.abs(value).max(), err_msg=name
        )


@pytest.mark.parametrize("kind", PAIRS)
def test_networks_on_the_attentions_data_train_by_sgd(kind):
    model = PAIRS[kind][1]("attention")
    state = {n: v.reshape(H, D, D) if n == "W1" and kind == "merged" else v
             for n, v in as_network(kind, states()[kind]).items()}  # fmt: skip
    params = {"Lambda": np.diag([1.0, 0.6, 0.3]), "N": N}
    steps, lr = 150, 0.01
    run = ok.simulate.sgd(
        model, y0=state, params=params, lr=lr, steps=steps, batch=8, seed=3,
        save_at=np.arange(steps + 1),
    )  # fmt: skip
    flow = ok.solve(model.flow, state, 2 * lr * steps, params)
    assert ok.simulate.compare(flow, run).passed


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ok.models.linear_network(data="some"), "choice of data 'some'"),
        (lambda: ok.models.linear_network(dim=3), "features"),
        (lambda: ok.models.linear_network(features=3, data="attention"), "dim by dim"),
        (lambda: ok.models.linear_network(features=(1, 2, 3)), "3 axes"),
        (lambda: ok.models.convolutional_network(data="some"), "choice of data 'some'"),
        (lambda: ok.models.convolutional_network(context=3), "windows and stride"),
        (lambda: ok.models.convolutional_network(stride=3, data="attention"), "are dim"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ok.InputError, match=words):
        make()
