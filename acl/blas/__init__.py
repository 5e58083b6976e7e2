"""acl.blas: products of matrices, as a single operator."""

from acl._absent import absent as _absent
from acl.blas._products import *  # noqa: F403

globals().update(_absent(__name__))
