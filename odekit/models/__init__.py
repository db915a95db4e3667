"""Published models, each as short as its formula."""

from collections.abc import Callable

from odekit.models.attention_merged import attention_merged
from odekit.models.attention_separate import attention_separate
from odekit.models.convolutional_network import convolutional_network
from odekit.models.deep_linear import deep_linear
from odekit.models.linear_network import cubic_moments, linear_network
from odekit.models.linear_transformer import linear_transformer
from odekit.models.model import Model
from odekit.models.modes import modes
from odekit.models.plateau import plateau

REGISTRY: dict[str, Callable[..., Model]] = {
    "attention_merged": attention_merged,
    "attention_separate": attention_separate,
    "linear_transformer": linear_transformer,
    "linear_network": linear_network,
    "convolutional_network": convolutional_network,
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
    "convolutional_network",
    "cubic_moments",
    "deep_linear",
    "linear_network",
    "linear_transformer",
    "modes",
    "plateau",
]
