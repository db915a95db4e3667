"""Expected losses, their gradient flows, and vector fields of a user's own."""

from odekit.field.flows import gradient_flow
from odekit.field.losses import ExpectedLoss, Sample, expected_loss
from odekit.field.scalar_field import ScalarField, vector_field
from odekit.field.tensor_field import TensorField
from odekit.field.vector_field import VectorField

__all__ = [
    "ExpectedLoss",
    "Sample",
    "ScalarField",
    "TensorField",
    "VectorField",
    "expected_loss",
    "gradient_flow",
    "vector_field",
]
