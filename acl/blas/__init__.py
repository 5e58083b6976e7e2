"""acl.blas: products of matrices, as a single operator."""

from acl.blas._products import *  # noqa: F403
