"""What a model takes and gives, changed on a user's wish: dtypes of inputs and outputs, and images instead of tensors.

Takes a graph as read; gives one whose inputs and outputs are as asked, before anything is optimised. Knows no flag.
"""

from graph_opt.interface.dtypes import set_input_dtype, set_output_dtype
from graph_opt.interface.images import IMAGE_FORMATS, ImagePreparation, prepare_image

__all__ = ["IMAGE_FORMATS", "ImagePreparation", "prepare_image", "set_input_dtype", "set_output_dtype"]
