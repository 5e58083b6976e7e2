"""acl.media: the image units (DVPP) of the simulated device. Tasks run at their turn in the stream; strides, sizes and
addresses are checked when a task is submitted, as DVPP documents them."""

from acl.media._channels import *  # noqa: F403
from acl.media._codecs import *  # noqa: F403
from acl.media._memory import *  # noqa: F403
from acl.media._pictures import *  # noqa: F403
from acl.media._vision import *  # noqa: F403
