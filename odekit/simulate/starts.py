"""Named random starts: plateau times scale with them, so a picture must say which it used."""

from __future__ import annotations

from typing import Any

import numpy as np

from odekit.errors import InputError
from odekit.simulate.layer import Floats, Layer, fixed_sizes, kind_of, real_array
from odekit.simulate.record import whole_number

__all__ = ["initial"]

_RULES = ("equal", "value", "fan")


def initial(
    model: Any,
    scale: float,
    seed: int,
    *,
    rule: str | None = None,
    heads: int | None = None,
    dim: int | None = None,
    rank: int | None = None,
) -> dict[str, Floats]:
    """Draw Gaussian weights by a named rule; the zero blocks start at zero.

    Parameters
    ----------
    model : Model or Layer
        A merged or separate attention model.
    scale : float
        ``init`` in the rules.
    seed : int
        The same seed draws the same reduced weights with and without the zero blocks.
    rule : {"equal", "value", "fan"}, optional
        - ``"equal"``: every entry has standard deviation ``init``; the default for merged.
        - ``"value"`` (rule (i) for separate, the default there): values ``init``, keys and
          queries ``init / sqrt(R (D+1))``.
        - ``"fan"`` (rule (ii)): values ``init / sqrt(H (D+1)^2)``, keys and queries
          ``init / sqrt(H R (D+1))``.
    heads, dim, rank : int, optional
        Sizes that the model leaves symbolic.

    Returns
    -------
    dict
        State name to array.

    Notes
    -----
    ``D+1`` is the width of a token with its label, as in the published code.
    """
    layer = sized_layer(model, heads=heads, dim=dim, rank=rank)
    if rule is None:
        rule = "equal" if layer.family == "merged" else "value"
    if rule not in _RULES:
        raise InputError(f"rule must be one of {', '.join(_RULES)}, got {rule!r}.")
    if layer.family == "merged" and rule != "equal":
        raise InputError(f'rule={rule!r} is for separate keys and queries; merged takes "equal".')
    scale = float(real_array(scale, "scale", ndim=0))
    if scale < 0:
        raise InputError(f"scale must be at least 0, got {scale!r}.")
    rng = np.random.default_rng(whole_number(seed, "seed", 0))
    H, R, D = layer.heads, layer.rank, layer.dim
    value = key = scale
    if rule == "value":
        key = scale / np.sqrt(R * (D + 1))
    elif rule == "fan":
        value = scale / np.sqrt(H * (D + 1) ** 2)
        key = scale / np.sqrt(H * R * (D + 1))
    v = value * rng.standard_normal(H)
    if layer.family == "merged":
        reduced = {"v": v, "U": key * rng.standard_normal((H, D, D))}
    else:
        reduced = {
            "v": v,
            "K": key * rng.standard_normal((H, R, D)),
            "Q": key * rng.standard_normal((H, R, D)),
        }
    return reduced if layer.blocks == "zero" else with_zero_blocks(reduced)


def with_zero_blocks(reduced: dict[str, Floats]) -> dict[str, Floats]:
    """Return the state with all blocks whose layer equals the reduced one: u = (0, v) and so on."""
    H = reduced["v"].shape[0]
    if "U" in reduced:
        D = reduced["U"].shape[-1]
        u, A = np.zeros((H, D + 1)), np.zeros((H, D, D + 1))
        u[:, D] = reduced["v"]
        A[:, :, :D] = reduced["U"].transpose(0, 2, 1)
        return {"u": u, "A": A}
    R, D = reduced["K"].shape[1:]
    u, K = np.zeros((H, D + 1)), np.zeros((H, R, D + 1))
    u[:, D] = reduced["v"]
    K[:, :, :D] = reduced["K"]
    return {"u": u, "K": K, "Q": reduced["Q"].copy()}


def sized_layer(
    model: Any, *, heads: int | None = None, dim: int | None = None, rank: int | None = None
) -> Layer:
    """Return the model's layer at concrete sizes; given sizes fill in symbolic ones."""
    if isinstance(model, Layer):
        return model
    kind = kind_of(model)
    if kind is None:
        name = getattr(model, "name", type(model).__name__)
        raise InputError(f"{name} is not a merged or separate attention model.")
    family, blocks = kind
    known = fixed_sizes(model)
    given = {"heads": heads, "dim": dim, "rank": rank if family == "separate" else 1}
    sizes = {}
    for name, value in given.items():
        value = known.get(name) if value is None else value
        if value is None:
            raise InputError(f"The model's {name} is symbolic; pass {name}=.")
        sizes[name] = whole_number(value, name, 1)
    return Layer(family, blocks, **sizes)
