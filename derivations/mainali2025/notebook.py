# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Exact learning dynamics of in-context learning in linear transformers
#
# Mainali and Teixeira (2025, arXiv:2504.12916), from the layer to its modes, step by step. Each
# cell makes a statement and runs its checks.

# %%
from odekit_derivations.mainali2025 import steps

import odekit as ok

# %% [markdown]
# ## The layer

# %%
steps.expected_loss()

# %%
steps.gradient_flow()

# %%
steps.balance()

# %% [markdown]
# ## Its modes
#
# Diagonal matrices stay diagonal; what couples the modes depends on the law of the tasks.

# %%
steps.modes()

# %%
steps.shared()

# %% [markdown]
# ## The published solution

# %%
steps.logistic()

# %% [markdown]
# ## Try it

# %%
run = ok.solve(
    ok.models.modes(dim=2).flow,
    {"p": [0.1, 0.1], "q": [0.1, 0.1]},
    80.0,
    {"s": [0.7, 0.3], "N": 100},
)
run.plot()
