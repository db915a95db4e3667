"""Published models, each as short as its formula."""

from collections.abc import Callable

from odekit.models.attention_merged import attention_merged
from odekit.models.attention_separate import attention_separate
from odekit.models.deep_linear import deep_linear
from odekit.models.linear_transformer import linear_transformer
from odekit.models.model import Model
from odekit.models.modes import modes
from odekit.models.plateau import plateau

REGISTRY: dict[str, Callable[..., Model]] = {
    "attention_merged": attention_merged,
    "attention_separate": attention_separate,
    "linear_transformer": linear_transformer,
    "deep_linear": deep_linear,
    "modes": modes,
    "plateau": plateau,
}
"""Models by name, for the command line."""

__all__ = [
    "REGISTRY",
    "Model",
    "attention_merged",
    "attention_separate",
    "deep_linear",
    "linear_transformer",
    "modes",
    "plateau",
]
