"""Quantised operators in terms of what kernels compute: integer products, element-wise arithmetic, reductions.

Takes a typed `Graph` and changes it in place through the rewriter; every pass is a small frozen dataclass in its file.
Knows the IR only; the numpy evaluation of operators is handed in by the driver.
"""

from graph_opt.quantisation.dequantize_late import DequantizeLate
from graph_opt.quantisation.dequantize_weights import DequantizeWeights
from graph_opt.quantisation.expand_qlinear import ExpandQLinear
from graph_opt.quantisation.expand_quantisation import ExpandQuantisation
from graph_opt.quantisation.expand_quantised_lstm import ExpandQuantisedLstm
from graph_opt.quantisation.fold_zero_points import FoldZeroPoints
from graph_opt.quantisation.fuse_dequantisation import FuseDequantisation
from graph_opt.quantisation.fuse_qdq_products import FuseQdqProducts
from graph_opt.quantisation.legalise_integer_convolutions import LegaliseIntegerConvolutions
from graph_opt.quantisation.legalise_integer_matmuls import LegaliseIntegerMatmuls
from graph_opt.quantisation.narrow_products import ChooseNarrowProducts, FuseNarrowProducts
from graph_opt.quantisation.select_codes import SelectCodes

__all__ = [
    "ChooseNarrowProducts",
    "DequantizeLate",
    "DequantizeWeights",
    "ExpandQLinear",
    "ExpandQuantisation",
    "ExpandQuantisedLstm",
    "FoldZeroPoints",
    "FuseDequantisation",
    "FuseNarrowProducts",
    "FuseQdqProducts",
    "LegaliseIntegerConvolutions",
    "LegaliseIntegerMatmuls",
    "SelectCodes",
]
