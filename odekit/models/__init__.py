"""Published models, each as short as its formula."""

from collections.abc import Callable

from odekit.models.attention_merged import attention_merged
from odekit.models.attention_separate import attention_separate
from odekit.models.model import Model

REGISTRY: dict[str, Callable[..., Model]] = {
    "attention_merged": attention_merged,
    "attention_separate": attention_separate,
}
"""Models by name, for the command line."""

__all__ = ["REGISTRY", "Model", "attention_merged", "attention_separate"]
