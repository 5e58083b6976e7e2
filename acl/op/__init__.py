"""acl.op: single operators, compiled at their first use and kept for the process."""

from acl._absent import absent as _absent
from acl.op._attributes import *  # noqa: F403
from acl.op._execution import *  # noqa: F403

globals().update(_absent(__name__))
