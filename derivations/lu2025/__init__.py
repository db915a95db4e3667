"""Asymptotic theory of in-context learning by linear attention (Lu et al., PNAS 2025).

The formulas live in `odekit.theory`; here they meet simulations at finite dimension
(`measured`) and the training dynamics whose end they describe (`dynamics`).
"""

from odekit.reproduce import Target

TARGETS = tuple(
    Target(f"lu2025/{name}", title, f"{__name__}.{name.replace('-', '_')}")
    for name, title in (
        ("double-descent", "Double descent in the number of pretraining contexts"),
        ("ridge", "Ridge regularisation removes the peak of double descent"),
        ("context-length", "Longer contexts at test and pretraining do not always help"),
        ("transition", "From memorising tasks to in-context learning"),
        ("early-stopping", "Training time acts as an inverse ridge"),
        ("nonlinear", "Softmax attention with an MLP beside the theory of linear attention"),
    )
)
