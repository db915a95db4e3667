"""Compiled integration methods: the whole stepping loop in Numba, generic in the field.

One method per file; `run.Run` holds a run in progress, `run.solve_blocks` integrates connected
components side by side, `ensemble` many members. Loops take the right-hand side as an address, so
they are compiled once and cached; only the right-hand side is compiled per field.
"""
