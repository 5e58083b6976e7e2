"""The `.om` package: written once, mapped by the runtime, opened by viewers of the public format.

Takes named byte sections, a header and a neutral description of the fused graph; gives zero-copy views of them,
or a PackageError with cause and remedy. It must not know what a section means: no plan, tile program or kernel.
"""

from .container import Section, SectionKind
from .errors import PackageError
from .model_def import ConstDesc, FusedGraph, NodeDesc, TensorDesc
from .reader import Package, cut_short, open_package
from .strip import strip
from .writer import HEADER, MODEL, WEIGHTS, Content, write_package

__all__ = [
    "HEADER",
    "MODEL",
    "WEIGHTS",
    "ConstDesc",
    "Content",
    "FusedGraph",
    "NodeDesc",
    "Package",
    "PackageError",
    "Section",
    "SectionKind",
    "TensorDesc",
    "cut_short",
    "open_package",
    "strip",
    "write_package",
]
