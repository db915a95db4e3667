from __future__ import annotations

import pytest

import odekit as ok


@pytest.fixture(scope="session")
def renamed_separate():
    """A separate-type model under other names, with the axes of its weights in another order."""
    N, E, G, S = ok.dims("N E G S")
    sigma = ok.parameter("Sigma", (E, E), symmetric=True)
    x = ok.gaussian("x", (N, E), covariance=sigma)
    query = ok.gaussian("z", (E,), covariance=sigma)
    task = ok.gaussian("task", (E,), covariance=ok.identity(E))
    gain, left, right = (
        ok.weight("gain", (G,)),
        ok.weight("left", (E, S, G)),
        ok.weight("right", (S, E, G)),
    )
    labels = ok.einsum("d,nd->n", task, x)
    beta = ok.einsum("n,nd->d", labels, x) / N
    prediction = ok.einsum("g,a,asg,sbg,b->", gain, beta, left, right, query)
    loss = ok.expected_loss(prediction, ok.einsum("d,d->", task, query))
    return ok.gradient_flow(loss, time_scale=2)
