"""Codes that ATC gives and openatc does not: what they mean there, and what to do. `atc explain` shows them.

The codes that openatc gives are in `tensor_types.error_codes`.
"""

from __future__ import annotations

_CAFFE = "export the model to ONNX: Caffe models are not read"
_TF = "export the model to ONNX: TensorFlow models are not read"
_SINGLE = "take away what is too much; here it is E13014"
_DEVICE = "arises where a model runs on a device; pyACL programs here get AscendCL's codes"
_PLUGIN = "register the operator with atc.register_op"
_INNER = "look for the code that stands before it: this one only repeats a failure"

FOREIGN_CODES: dict[str, tuple[str, str]] = {
    "E10004": ("A flag is given without a value", "write --flag=value; here it is E10001"),
    "E10012": ("Gears for a batch on an input without axes", "leave scalars out of --input_shape; here it is E10018"),
    "E10014": ("A size in --input_shape holds something that is no number", "write whole numbers; here it is E10002"),
    "E10041": ("A package cannot be loaded", "convert the model again; here it is E13005"),
    "E10046": ("A gear of --dynamic_dims has more or fewer sizes than dims are open", "here it is E10045"),
    "E10047": ("Two flags for compressed weights exclude each other", "leave both out: weights are kept as they are"),
    "E10051": ("The identifier of a job is too long", "nothing here has one"),
    "E10057": ("A flag is given without another that it needs", "add the other; here it is E10001 or E10054"),
    "E10059": ("A stage of the conversion failed", _INNER),
    "E10060": ("A parameter of a call is not valid", "see the message"),
    "E10061": ("A value is another than the expected one", "see the message"),
    "E10062": ("Functions were called in a wrong order", "initialise first, finalise last"),
    "E10063": ("A call of the system or of another library failed", "see the cause; here it is E13024 or E14001"),
    "E10401": ("An operator has more inputs than it can have", _SINGLE),
    "E10402": ("The memory given for an input is too small", _DEVICE),
    "E10403": ("An operator has more outputs than it can have", _SINGLE),
    "E10404": ("The memory given for an output is too small", _DEVICE),
    "E10405": ("Another number of input buffers than inputs", _DEVICE),
    "E10406": ("Another number of output buffers than outputs", _DEVICE),
    **dict.fromkeys(
        ("E11001", "E11003", "E11004", "E11005"), ("The inputs of a Caffe model are declared wrongly", _CAFFE)
    ),
    **dict.fromkeys(("E11008", "E11009"), ("A layer of a Caffe model is not supported", _CAFFE)),
    **dict.fromkeys(
        ("E11012", "E11014", "E11015", "E11035", "E11036"), ("Tops or bottoms of a Caffe model are wrong", _CAFFE)
    ),
    **dict.fromkeys(("E11016", "E11017", "E11037"), ("The outputs of a Caffe model are wrong", _CAFFE)),
    **dict.fromkeys(("E11018", "E11021", "E11022", "E11023", "E11024"), ("A Caffe file cannot be read", _CAFFE)),
    **dict.fromkeys(("E11027", "E11029", "E11032", "E11033"), ("Weights or blobs of a Caffe model are wrong", _CAFFE)),
    **dict.fromkeys(("E12004", "E12009", "E12013", "E12029"), ("A TensorFlow graph is not well-formed", _TF)),
    "E13000": ("A path is empty", "give one; here it is E10054"),
    "E13002": ("A folder's name is too long", "use a shorter one; here it is E13004"),
    "E13006": ("A file is of another type than the flag wants", "see the flag in docs/flags.md"),
    "E13009": ("Two operators have one name", "nothing to do: names are made unique here"),
    "E13023": ("A model, or a part of it, is too large", "nothing to do: weights are mapped here, also above 2 GB"),
    "E13027": ("A service cannot be reached", "nothing here connects to one"),
    **dict.fromkeys(("E13028", "E13029", "E13030"), ("A fusion pass of the user cannot be loaded or run", _PLUGIN)),
    "E16001": ("The model has no node of a kind that it must have", "export the model again; here it is E16004"),
    **dict.fromkeys(("E20001", "E20007"), ("A fusion pass or the compilation of a kernel failed", _INNER)),
    **dict.fromkeys(
        ("E20002", "E20003"), ("The environment, or a file in it, is not as expected", "here it is E13024")
    ),
    **dict.fromkeys(("E20101", "E20103"), ("An option of the kernel compiler is wrong", "here it is E10001")),
    **dict.fromkeys(("E21001", "E21002"), ("A file of the kernel library cannot be read", "there is none here")),
    "E29999": ("An inner error of the fusion engine", _INNER),
    "EE1001": ("A package was made for another chip than the device", "pass the device's name to --soc_version"),
    "EZ3002": ("The kernel library has no operator of this type", "convert here: atc check lists what is missing"),
    "EZ3003": ("The kernel library has no kernel for the chip", "convert here: such nodes run on the AI CPU"),
    "W11001": ("An operator runs without its fast kernel library", "atc convert -v lists nodes of the AI CPU"),
    "W11002": ("A list of weights to compress names absent nodes", "leave it out: weights are kept as they are"),
    "W11003": ("An operator has no implementation function", "atc convert -v lists nodes of the AI CPU"),
}
"""By code: what it means in ATC, and what to do or what stands for it here."""
