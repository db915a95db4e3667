"""Named random starts: plateau times scale with them, so a picture must say which it used."""

from __future__ import annotations

from typing import Any

import numpy as np

from odekit.errors import InputError
from odekit.simulate.layer import Floats, Layer, fixed_sizes, kind_of, real_array
from odekit.simulate.linear_models import is_linear
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
    """Draw weights by a named rule; the zero blocks start at zero.

    Parameters
    ----------
    model : Model or Layer
        A merged or separate attention model, ``deep_linear`` or ``linear_transformer``.
    scale : float
        ``init`` in the rules.
    seed : int
        The same seed draws the same reduced weights with and without the zero blocks.
    rule : {"equal", "value", "fan", "balanced"}, optional
        - ``"equal"``: every entry has standard deviation ``init``; the default except for separate.
        - ``"value"`` (rule (i) for separate, the default there): values ``init``, keys and
          queries ``init / sqrt(R (D+1))``.
        - ``"fan"`` (rule (ii) for separate): values ``init / sqrt(H (D+1)^2)``, keys and queries
          ``init / sqrt(H R (D+1))``; for deep linear networks ``init / sqrt(inputs of the layer)``.
        - ``"balanced"``: deep linear networks and the restricted transformer only, random rotations
          with all singular values ``init``, so that ``W2^T W2 = W1 W1^T`` and so on; of the rank of
          the narrowest layer.
    heads, dim, rank : int, optional
        Sizes that the model leaves symbolic; widths of a deep network are given to the model.

    Returns
    -------
    dict
        State name to array.

    Notes
    -----
    ``D+1`` is the width of a token with its label, as in the published code.
    """
    scale = float(real_array(scale, "scale", ndim=0))
    if scale < 0:
        raise InputError(f"scale must be at least 0, got {scale!r}.")
    seed = whole_number(seed, "seed", 0)
    if is_linear(model):
        return _linear_start(model, scale, seed, "equal" if rule is None else rule, dim)
    layer = sized_layer(model, heads=heads, dim=dim, rank=rank)
    if rule is None:
        rule = "equal" if layer.family == "merged" else "value"
    if rule not in _RULES:
        raise InputError(f"rule must be one of {', '.join(_RULES)}, got {rule!r}.")
    if layer.family == "merged" and rule != "equal":
        raise InputError(f'rule={rule!r} is for separate keys and queries; merged takes "equal".')
    rng = np.random.default_rng(seed)
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


def _linear_start(
    model: Any, scale: float, seed: int, rule: str, dim: int | None
) -> dict[str, Floats]:
    """Draw the weights of a deep linear network or a p, q transformer."""
    names = [weight.name for weight in model.weights]
    chain = model.name == "deep_linear"
    rules = ("equal", "fan", "balanced") if chain else ("equal", "balanced")
    if rule not in rules:
        raise InputError(f"rule must be one of {', '.join(rules)}, got {rule!r}.")
    if chain:
        widths = list(model.options["widths"])
        if not all(getattr(width, "is_number", True) for width in widths):
            raise InputError("The model's widths are symbolic; make it with widths=(...).")
        widths = [int(width) for width in widths]
    else:
        if rule == "balanced" and model.options["blocks"] == "all":
            raise InputError('rule="balanced" is for a product of two; use blocks="restricted".')
        d = dim if dim is not None else fixed_sizes(model).get("dim")
        if d is None:
            raise InputError("The model's dim is symbolic; pass dim=.")
        widths = [whole_number(d, "dim", 1)] * 3
        names = names[:2][::-1] + names[2:]  # q1 comes before p2 in the product
    rng = np.random.default_rng(seed)
    if rule == "balanced":
        least = min(widths)
        turns = [np.linalg.qr(rng.standard_normal((w, w)))[0][:, :least] for w in widths]
        pairs = zip(turns[1:], turns, strict=False)
        drawn = [scale * after @ before.T for after, before in pairs]
    else:
        shapes = list(zip(widths[1:], widths, strict=False))
        shapes += shapes[:1] * (len(names) - len(shapes))
        divisor = [np.sqrt(shape[1]) if rule == "fan" else 1.0 for shape in shapes]
        drawn = [
            scale / by * rng.standard_normal(shape)
            for shape, by in zip(shapes, divisor, strict=True)
        ]
    start = dict(zip(names, drawn, strict=True))
    return {weight.name: start[weight.name] for weight in model.weights}


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
