"""Training loops of attention in plain torch (float32, one thread, autograd), as peers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

PRESENT = importlib.util.find_spec("torch") is not None


def stepper(
    y0: dict[str, Any], x: Any, labels: Any, lr: float, *, softmax: bool, whole: bool
) -> Callable[[], float]:
    """Return a call that takes one full-batch step and returns the loss before it.

    With `whole` the layer is computed at every token, as a library's layer is and as the published
    code does, and read at the last; without, only the row of the query is. The heads are summed at
    the end; the separate family projects to keys and queries and never forms A_h.
    """
    import torch

    torch.set_num_threads(1)
    tokens = np.concatenate([x, labels[:, :, None]], axis=2)
    tokens[:, -1, -1] = 0.0
    z = torch.tensor(tokens, dtype=torch.float32)
    target = torch.tensor(labels[:, -1], dtype=torch.float32)
    w = {k: torch.tensor(v, dtype=torch.float32, requires_grad=True) for k, v in y0.items()}
    optimiser = torch.optim.SGD(w.values(), lr=lr)
    dim, count = x.shape[2], x.shape[1] - 1
    rows = z if whole else z[:, -1:]

    def step() -> float:
        optimiser.zero_grad()
        if "A" in w:
            keys = torch.einsum("pnd,hde->phne", rows[..., :dim], w["A"])
            scores = torch.einsum("phne,pme->phnm", keys, z)
        else:
            queries = torch.einsum("pnd,hrd->phnr", rows[..., :dim], w["Q"])
            keys = torch.einsum("pme,hre->phmr", z, w["K"])
            scores = queries @ keys.transpose(2, 3)
        scores = torch.softmax(scores, dim=3) if softmax else scores / count
        values = torch.einsum("pme,he->phm", z, w["u"])
        out = torch.einsum("phnm,phm->pn", scores, values)
        loss = ((out[:, -1] - target) ** 2).mean()
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    return step


def version() -> str:
    """Return torch's version."""
    import torch

    return str(torch.__version__)
