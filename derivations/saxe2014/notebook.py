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
# # Deep linear networks
#
# Saxe, McClelland, Ganguli (2014, arXiv:1312.6120), at depths 2, 3 and 4. Each cell makes a
# statement and runs its checks.

# %%
from odekit_derivations.saxe2014 import modes, steps

import odekit as ok

# %% [markdown]
# ## The flow and what it conserves

# %%
steps.gradient()

# %%
steps.balances()

# %% [markdown]
# ## Modes

# %%
steps.mode_dynamics()

# %%
steps.balanced_dynamics()

# %%
steps.sigmoidal_solution()

# %% [markdown]
# ## Try it

# %%
ok.closed_form(modes.balanced_mode(2))
