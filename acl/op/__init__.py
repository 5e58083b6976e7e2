"""acl.op: single operators, compiled at their first use and kept for the process."""

from acl.op._attributes import *  # noqa: F403
from acl.op._execution import *  # noqa: F403
