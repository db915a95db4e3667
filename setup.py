"""Finds the packages; everything else stands in pyproject.toml.

``derivations/`` is installed as ``odekit_derivations``. Packages under a mapped name are found
here, since pyproject.toml could only list them one by one.
"""

from setuptools import find_packages, setup

papers = find_packages("derivations")
setup(
    packages=[
        *find_packages(include=["odekit", "odekit.*"]),
        *(f"odekit_derivations.{paper}" for paper in papers),
    ],
    package_dir={"odekit_derivations": "derivations"},
)
