"""acl.mdl: models, their descriptions, gears and image stages, datasets, execution."""

from acl._absent import absent as _absent
from acl.mdl._datasets import *  # noqa: F403
from acl.mdl._descriptions import *  # noqa: F403
from acl.mdl._dumps import *  # noqa: F403
from acl.mdl._execution import *  # noqa: F403
from acl.mdl._gears import *  # noqa: F403
from acl.mdl._images import *  # noqa: F403
from acl.mdl._loading import *  # noqa: F403

globals().update(_absent(__name__))
