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
# # Asymptotic theory of in-context learning by linear attention
#
# Lu, Letey, Zavatone-Veth, Maiti, Pehlevan (PNAS 2025): what a context looks like to linear
# attention, how training ends, and what the sharp asymptotics say of its error. Each cell makes a
# statement and runs its checks.

# %%
from odekit_derivations.lu2025 import steps

import odekit as ok

# %% [markdown]
# ## What the layer sees, and how it learns

# %%
steps.features()

# %%
steps.training()

# %%
steps.layer()

# %% [markdown]
# ## What it costs

# %%
steps.peak()

# %%
steps.best_ridge()

# %%
steps.diversity()

# %% [markdown]
# ## Try it

# %%
ok.theory.learning_curve(alpha=10.0, kappa=[0.5, 1.0, 4.0], tau=4.0, noise=0.01, ridge=1e-3)
