"""acl.prof: absent; `atc profile` measures packages."""

from acl._absent import absent

globals().update(absent(__name__))
__all__ = sorted(absent(__name__))
