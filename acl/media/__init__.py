"""acl.media: the image units (DVPP) of the simulated device. Tasks run at their turn in the stream; strides, sizes and
addresses are checked when a task is submitted, as DVPP documents them."""

from acl._absent import absent as _absent
from acl.media._channels import *  # noqa: F403
from acl.media._codecs import *  # noqa: F403
from acl.media._memory import *  # noqa: F403
from acl.media._pictures import *  # noqa: F403
from acl.media._video import *  # noqa: F403
from acl.media._vision import *  # noqa: F403

globals().update(_absent(__name__))
