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
# # Training dynamics of linear attention
#
# Zhang, Singh, Latham, Saxe (ICML 2025, arXiv:2501.16265), derived step by step. Each cell makes
# a statement and runs its checks; what it shows was true a moment ago.

# %%
import numpy as np
from odekit_derivations.zhang2025 import lazy, linear_networks, loss, merged, plateaus, separate

import odekit as ok

# %% [markdown]
# ## The loss and the flow
#
# A sequence is `x_1, y_1, ..., x_N, y_N, x_q` with Gaussian tokens and a fresh task. Linear
# attention sees it through `beta = sum_n y_n x_n / N` and predicts `beta^T A x_q`.

# %%
loss.expected_loss()

# %%
loss.second_moment_of_the_context()

# %%
loss.gradient_flow()

# %% [markdown]
# ## Merged keys and queries
#
# One plateau, one drop.

# %%
merged.fixed_points()

# %%
merged.white_closed_form()

# %% [markdown]
# ## The same as linear networks
#
# Attention is a network on the cubic features `beta x_q^T`.

# %%
linear_networks.merged_is_a_two_layer_network()

# %%
linear_networks.separate_is_convolutional()

# %% [markdown]
# ## Separate keys and queries
#
# From saddle to saddle, one eigenvector after another.

# %%
separate.fixed_points()

# %%
separate.plateau_losses()

# %% [markdown]
# ## Plateaus
#
# How long they last, who grows first, and what the layer computes on the way.

# %%
plateaus.scalar_equation()

# %%
plateaus.order_of_learning()

# %%
plateaus.principal_components()

# %%
plateaus.within_a_head()

# %% [markdown]
# ## Large starts

# %%
lazy.large_starts()

# %% [markdown]
# ## Try it

# %%
run = ok.solve(
    ok.models.attention_separate(heads=4, rank=1, dim=4).flow,
    ok.simulate.initial(ok.models.attention_separate(heads=4, rank=1, dim=4), 0.01, seed=0),
    6e5,
    {"Lambda": np.diag([0.4, 0.3, 0.2, 0.1]), "N": 31},
)
run.plot(plateaus=ok.theory.plateau_losses([0.4, 0.3, 0.2, 0.1], 31), time="log")
