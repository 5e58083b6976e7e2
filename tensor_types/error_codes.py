"""Every error code with its meaning, the exit code of a command that ends with it, and what helps in general.

Codes are those of ATC where it has one for the case. A message says what is wrong in the case at hand, and its remedy
is more exact than the one here.
"""

from __future__ import annotations

from typing import NamedTuple

OPEN_FAILED = "E13001"
WRITE_FAILED = "E13004"


class ErrorCode(NamedTuple):
    """`exit_code`: 1 internal, 2 usage, 3 invalid input or model, 4 unsupported operator, 5 resource, 7 environment,
    130 interrupted."""

    meaning: str
    exit_code: int
    remedy: str


ERROR_CODES: dict[str, ErrorCode] = {
    "E10001": ErrorCode("A flag or an argument has a value that it cannot have", 2, "use one that the message lists"),
    "E10002": ErrorCode("`--input_shape` is not of the form name:d,d", 2, 'write "name:1,3,224,224;other:1,-1"'),
    "E10003": ErrorCode("A flag takes a number and has something else", 2, "write a number"),
    "E10005": ErrorCode("A flag takes true or false and has another value", 2, "write true or false"),
    "E10006": ErrorCode("A flag takes 0 or 1 and has another value", 2, "write 0 or 1"),
    "E10007": ErrorCode("`--framework` is missing or not 5", 2, "export the model to ONNX and give `--framework=5`"),
    "E10008": ErrorCode("`--soc_version` is missing", 2, "name a chip"),
    "E10009": ErrorCode("Two of the flags for gears are given", 2, "give one of them"),
    "E10010": ErrorCode("`--log` has a level that there is not", 2, "debug, info, warning, error or null"),
    "E10011": ErrorCode("`--input_shape` holds a dim that is neither positive nor -1", 3, "give another dim"),
    "E10013": ErrorCode("`--input_shape` holds a size that is too large", 2, "give a smaller one"),
    "E10016": ErrorCode("A flag names an input, node or tensor that is not there", 3, "use one that the message lists"),
    "E10017": ErrorCode("A flag for inputs names a node that is none", 2, "use one that the message lists"),
    "E10018": ErrorCode("`--dynamic_batch_size` with another open dim", 2, "fix the others in `--input_shape`"),
    "E10019": ErrorCode("`--dynamic_image_size` with another open dim", 2, "fix the others in `--input_shape`"),
    "E10020": ErrorCode("`--dynamic_image_size` is not of the form h,w;h,w", 2, 'write "224,224;448,448"'),
    "E10021": ErrorCode("A path is too long", 2, "use at most 4096 characters"),
    "E10022": ErrorCode("`--output` names a folder", 2, "give a file name"),
    "E10023": ErrorCode("A flag does not go with `--singleop`", 2, "leave it out: the file says all"),
    "E10024": ErrorCode("The file of `--singleop` cannot be opened", 2, "check the path and its permissions"),
    "E10025": ErrorCode("The file of `--singleop` is not JSON", 2, "mend the place that is named"),
    "E10026": ErrorCode("An operator of `--singleop` has no type", 2, "write one"),
    "E10027": ErrorCode("A tensor of `--singleop` is not described rightly", 2, "use what the message lists"),
    "E10029": ErrorCode("An attribute of `--singleop` has no name", 2, "write one"),
    "E10030": ErrorCode("An attribute of `--singleop` has a value that it cannot have", 2, "give a value of its type"),
    "E10031": ErrorCode("`--dynamic_batch_size` without an open batch", 2, "write -1 for it in `--input_shape`"),
    "E10032": ErrorCode("The file of `--singleop` is no list of operators", 2, "mend the entry that is named"),
    "E10034": ErrorCode("An input takes images and is set to f16", 2, "leave it out of one of the flags"),
    "E10035": ErrorCode("Too few gears", 2, "give two at least, or fix the size"),
    "E10036": ErrorCode("Too many gears", 2, "give a hundred at most, or leave the sizes open"),
    "E10037": ErrorCode("Gears have different numbers of sizes", 2, "give each gear one size for each open dim"),
    "E10038": ErrorCode("A gear has a size that is not positive", 2, "give sizes from 1 on"),
    "E10039": ErrorCode("A gear is given twice", 2, "give each once"),
    "E10040": ErrorCode("Gears without a dim of -1, or with a range", 2, "write -1 in `--input_shape`"),
    "E10045": ErrorCode("Gears have another number of sizes than dims are open", 2, "give one for each"),
    "E10048": ErrorCode("`--input_shape_range` is not of the form name:[d,d~d]", 2, 'write "name:[1,3~8,-1]"'),
    "E10049": ErrorCode("`--input_shape` has another number of dims than the input", 3, "give one dim an axis"),
    "E10050": ErrorCode("`--input_shape` contradicts the model", 3, "give the model's own dim, or -1"),
    "E10052": ErrorCode("The file of `--insert_op_conf` is wrong, or does not fit", 2, "mend the line that is named"),
    "E10054": ErrorCode("A flag that is needed is missing", 2, "add it; quote values that hold a semicolon"),
    "E10055": ErrorCode("What is asked for is not available: a flag, a chip, an opset", 3, "see the message"),
    "E10056": ErrorCode("Two flags exclude each other", 2, "give one of them"),
    "E10058": ErrorCode("A precision mode needs a dtype that the chip lacks", 2, "use another mode or chip"),
    "E10064": ErrorCode("Caches cannot become states of `--cache_capacity`", 3, "see the message"),
    "E10130": ErrorCode("The user interrupted the work", 130, "run it again; nothing is half written"),
    "E10410": ErrorCode("A file that a flag names cannot be read", 2, "check the path and its permissions"),
    "E10501": ErrorCode("An operator of `--singleop` is not known", 2, "use a name of Ascend's IR, or of ONNX"),
    "E13001": ErrorCode("A file cannot be opened", 3, "check the path and its permissions"),
    "E13003": ErrorCode("A tile program could not be compiled", 7, "see the cause; report it with the model"),
    "E13004": ErrorCode("A file cannot be written", 7, "choose a folder that can be written, with space left"),
    "E13005": ErrorCode("A model, package or key file cannot be read", 3, "copy it again, or make it again"),
    "E13010": ErrorCode("A package needs a custom operator that is not registered", 4, "import the module named"),
    "E13014": ErrorCode("An operator, a tensor or an input is not valid", 3, "see the place; export the model again"),
    "E13015": ErrorCode("The data of a constant do not fit dtype and shape", 3, "the model is damaged: export again"),
    "E13018": ErrorCode("The file of `--mode=5` is no text form of a message", 2, "give the dump as it was written"),
    "E13024": ErrorCode("The machine lacks something that is needed", 7, "install or allow what the message names"),
    "E13025": ErrorCode("An input of a node or of the model is not valid", 3, "see the place; export the model again"),
    "E13026": ErrorCode("External data lie outside the model's folder", 3, "put the data file beside the model"),
    "E13031": ErrorCode("An output has no producer, or more than one", 3, "give each tensor one producer"),
    "E14001": ErrorCode("Memory, disk or a stated limit is exhausted", 5, "use smaller shapes, or free some space"),
    "E14002": ErrorCode("An attribute that is needed is missing", 3, "the model is damaged: export it again"),
    "E16002": ErrorCode("Operators have no implementation", 4, "see `atc check`; `atc.register_op` adds operators"),
    "E16004": ErrorCode("The file holds no ONNX graph with outputs", 3, "export the model again"),
    "E16005": ErrorCode("A domain is imported twice, or not at all", 3, "keep one opset_import for each domain"),
    "E17001": ErrorCode("The verifier refuses a tile program", 3, "mend the program: the message has the statement"),
    "E17002": ErrorCode("A plan breaks a rule of memory or order", 1, "report it with the model"),
    "E17003": ErrorCode("A tiling cannot be: its line, its node, or its sizes", 3, "see the reason; leave it out"),
    "E19999": ErrorCode("A fault of the product", 1, "report it with the log file that the message names"),
}
