"""What a conversion can be told: one field of `Options` is one option, and every face of it follows from the field.

The field has the option's type and default; its `Option` has the help, how the value is written and the parser. From
these come the flags of `atc convert`, those of ATC's own spelling, the keywords of `atc.convert(...)`, docs/flags.md
and the `options` of the report. A new option is one field here and one use where it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from atc import option_values as values
from atc.aipp import PRESETS, AippOp, parse_aipp
from atc.flag_fates import REFUSED, WITHOUT_EFFECT, note_of
from atc.fusion_switches import level, switch_file, switch_list
from atc.gears import Gears, batch_gears, dims_gears, image_gears
from atc.precision_files import Wishes, customize_dtypes, keep_dtype, mixlist, op_precision_mode
from atc.raw_options import with_raw_options
from atc.usage import Problems, UsageError, did_you_mean
from graph_opt.precision.lists import DEFAULT, POLICIES, VERSION_2

Parser = Callable[[str, Any], Any]
"""(flag, value) to the option's value: the value is the text of a command line, or comes from Python."""


@dataclass(frozen=True)
class Option:
    """How an option is given.

    `value` says what is written after `=`, "" for a switch that needs nothing there. `also` holds other flags that set
    the same option, with their parsers and values. `reported` options stand in the report when they are not the
    default; paths are not, since a package must not depend on where it was made.
    """

    help: str
    parse: Parser
    value: str = "text"
    also: Mapping[str, tuple[Parser, str]] = field(default_factory=dict)
    several: bool = False
    reported: bool = True
    overriding: tuple[str, ...] = ()
    """Flags of `also` that win over the option's own; of others only one may be given."""
    clash: str = "E10056"
    """The code where two are given."""
    recorded: bool = True
    """Stands in the command line that the package keeps. Ways of cutting do not: the tasks tell them."""


def option(default: Any, help: str, parse: Parser, **more: Any) -> Any:
    """A field of `Options`; `more` as the fields of `Option`. An empty dict as default is made anew each time."""
    metadata = {"option": Option(help, parse, **more)}
    if default == {}:
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Options:
    """All options of a conversion, checked. `Options.of(...)` makes them of texts and values."""

    input_shape: values.Shapes = option(
        {}, '"name:d,d;name2:d", 1~8 is a range, -1 stays symbolic; without names in the order of inputs',
        values.shapes, reported=False,
        also={"input_shape_range": (values.shape_ranges, '"name:[1~8,3,-1];name2:[2]", the older form; it wins')},
        overriding=("input_shape_range",),
    )  # fmt: skip
    input_format: str = option(
        "", "ND, NCHW, NHWC, NCDHW or NDHWC: where gears and AIPP find height and width", values.input_format
    )
    cache_capacity: int = option(
        0, "rows of a decoder's caches, which become states: written in place, kept from run to run", values.count
    )
    soc_version: tuple[str, ...] = option(
        ("Ascend910B2",), "chip, or chips with commas, for the estimate", values.chips, reported=False
    )
    precision_mode: str = option(
        DEFAULT, f"{', '.join(POLICIES)}", values.precision_mode, reported=False,
        also={"precision_mode_v2": (values.precision_mode_v2, ", ".join(VERSION_2))},
    )  # fmt: skip
    dynamic_dims: Gears | None = option(
        None, 'sizes of open dims, "1,224;8,448": one combination after the other', dims_gears, reported=False,
        also={
            "dynamic_batch_size": (batch_gears, 'batches, "1,2,4,8"'),
            "dynamic_image_size": (image_gears, 'heights and widths, "224,224;448,448"'),
        },
        clash="E10009",
    )  # fmt: skip
    insert_op_conf: tuple[AippOp, ...] = option(
        (), "file that says how images become tensors (AIPP)", parse_aipp, value="path", reported=False,
        also={"aipp": (parse_aipp, f"one of {', '.join(PRESETS)}, or a file as above")},
    )  # fmt: skip
    input_fp16_nodes: tuple[str, ...] = option((), '"name;name2": inputs that take f16', values.names)
    out_nodes: tuple[str, ...] = option(
        (), '"node:0;node2:0" or names of tensors: outputs instead of those of the model', values.names
    )
    output_type: tuple[tuple[str, str], ...] = option(
        (), f"{', '.join(values.OUTPUT_TYPES)} for all outputs of floats, or \"node:0:FP16;node2:0:FP32\"",
        values.output_types,
    )  # fmt: skip
    check_report: Path | None = option(
        None, "file for what the check of the model found", values.path, value="path", reported=False
    )
    modify_mixlist: Wishes = option(
        (), "JSON file that changes the lists of operators of the mixed modes", mixlist, value="path", reported=False
    )
    keep_dtype: Wishes = option(
        (), "file of nodes, or OpType::Type, that keep the dtype of the model", keep_dtype, value="path", reported=False
    )
    customize_dtypes: Wishes = option(
        (), "file of dtypes for single operators; goes before the mode", customize_dtypes, value="path", reported=False
    )
    op_precision_mode: Wishes = option(
        (), "ini file of variants by operator type or node name", op_precision_mode, value="path", reported=False
    )
    high_precision: bool = option(
        False, "convolutions are sums over their windows, without Winograd's shorter way; nothing is quantised",
        values.boolean, value="",
        also={"op_select_implmode": (values.implementation_mode, ", ".join(values.IMPLEMENTATION_MODES))},
    )  # fmt: skip
    dynamic_quantisation: bool = option(
        False, "products whose weights are codes of 8 bits or fewer round their other operand to bytes at run time",
        values.boolean, value="",
    )  # fmt: skip
    custom_op: tuple[str, ...] = option(
        (), "module, or .py file, that registers custom operators", values.words, several=True, reported=False
    )
    sign: Path | None = option(
        None, "ed25519 private key file to sign the native code with", values.path, value="path", reported=False
    )

    tiling: Mapping[str, Any] = option(
        {}, "file with lines `node: tiling`, in the form in which `atc inspect` shows them", values.tilings,
        value="path", reported=False, recorded=False,
    )  # fmt: skip
    tune: bool = option(
        False, "measure tilings on this machine; those found also go into a file beside the package, for --tiling",
        values.boolean, value="", reported=False, recorded=False,
    )  # fmt: skip
    budget: int = option(
        60, "seconds that --tune may take", values.seconds, value="seconds", reported=False, recorded=False
    )

    fusion_switch_file: tuple[str, ...] = option(
        (), "file that switches fusions off, by ATC's names of passes or ours", switch_file, value="path",
        also={
            "optimization_switch": (switch_list, '"Name:off;Name2:on", goes before the file'),
            "oo_level": (level, "O3, or O1 without fusions; goes before the file"),
        },
        overriding=("optimization_switch", "oo_level"),
    )  # fmt: skip
    oo_constant_folding: bool = option(True, "false leaves constants to the run", values.boolean)
    disable_pass: tuple[str, ...] = option(
        (), "graph pass to leave out, by its name in docs/passes.md", values.disabled_passes, several=True
    )
    verify_ir: bool = option(
        False, "check the graph after every pass, and the plans: slow, for whoever changes the compiler",
        values.boolean, value="", reported=False,
    )  # fmt: skip
    dump_ir: Path | None = option(
        None, "folder that gets the graph after every pass, as text and as ONNX for viewers", values.path,
        value="path", reported=False,
    )  # fmt: skip

    raw_ge_options: Path | None = option(
        None, "JSON file of options by their names in ATC's graph engine; flags go before them", values.path,
        value="path", reported=False,
    )  # fmt: skip
    raw_ge_options_ignore_unsupported: bool = option(
        False, "true leaves out what stands for no flag in that file, and says so", values.boolean, reported=False
    )

    notes: tuple[str, ...] = ()
    """What the user should know of the flags given: those without effect, chips that stand for others."""

    def __post_init__(self) -> None:
        """Texts, and sequences of words, are read as flags are: `Options(soc_version="910B2")`. UsageError as `of`."""
        problems, notes = Problems(), list(self.notes)
        for name, about in declared():
            value, default = getattr(self, name), type(self).__dataclass_fields__[name].default
            listed = isinstance(default, tuple) and about.value == "text" and isinstance(value, (list, tuple))
            listed = listed and all(isinstance(word, str) for word in value)
            if value and value != default and (listed or isinstance(value, (str, Mapping))):
                with problems.gathered():
                    found = read(about.parse, name, value)
                    if isinstance(found, values.Noted):
                        notes += [note for note in found.notes if note not in notes]
                        found = found.value
                    object.__setattr__(self, name, found)
        object.__setattr__(self, "notes", tuple(notes))
        problems.raise_all()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """The options of flags by name, those of ATC that have no effect among them.

        UsageError, of all that is wrong at once: unknown names, flags that are refused, values that cannot be (codes of
        the parsers), and two flags for one option (E10056).
        """
        parsers = {name: parser for flag, owner in declared() for name, parser in spellings(flag, owner).items()}
        problems = Problems()
        found: dict[str, Any] = {}
        by: dict[str, str] = {}
        notes: list[str] = []
        flags = dict(given)
        with problems.gathered():
            flags, notes = with_raw_options(given, (*parsers, *WITHOUT_EFFECT, *REFUSED))
        for name, value in sorted(flags.items(), key=lambda item: _wins(item[0])):
            with problems.gathered():
                if name in WITHOUT_EFFECT or name in REFUSED:
                    notes.append(note_of(name, str(value)))
                    continue
                if name not in parsers:
                    guess = did_you_mean(name, (*parsers, *WITHOUT_EFFECT, *REFUSED))
                    raise UsageError(f"there is no option {name!r}", where={"flag": f"--{name}"},
                                     remedy=guess or f"known options: {', '.join(parsers)}")  # fmt: skip
                owner, parse = parsers[name]
                if owner in found and not _wins(name):
                    code = dict(declared())[owner].clash
                    raise UsageError(f"--{by[owner]} and --{name} exclude each other", code=code,
                                     where={"flag": f"--{name}"}, remedy="give one of them")  # fmt: skip
                found[owner], by[owner] = None, name
                found[owner] = read(parse, name, value)
                if isinstance(found[owner], values.Noted):
                    notes += found[owner].notes
                    found[owner] = found[owner].value
        with problems.gathered():
            _check_together(found)
        problems.raise_all()
        if found.get("high_precision") and found.get("dynamic_quantisation"):
            notes.append("--high_precision goes before --dynamic_quantisation: no product is quantised")
        return cls(**found, notes=tuple(filter(None, notes)), command_line=_command_line(given))

    command_line: str = field(default="atc --framework=5", compare=False)
    """The flags as they were given, without the names of model and package; of files without their folders."""

    @property
    def passes_left_out(self) -> frozenset[str]:
        """Names of graph passes that are not run, by whatever flag."""
        folding = () if self.oo_constant_folding else ("fold-constants",)
        return frozenset((*self.disable_pass, *self.fusion_switch_file, *folding))

    @property
    def quantises_dynamically(self) -> bool:
        """Whether products with codes quantise their other operand, which --high_precision forbids."""
        return self.dynamic_quantisation and not self.high_precision

    @property
    def operator_wishes(self) -> Wishes:
        """What is said of the dtypes of single operators, by any flag."""
        return (*self.modify_mixlist, *self.keep_dtype, *self.customize_dtypes, *self.op_precision_mode)

    def report(self) -> dict[str, Any]:
        """The options that differ from their defaults, for the report."""
        standard = type(self)()
        return {
            name: str(getattr(self, name))
            for name, about in declared()
            if about.reported and getattr(self, name) != getattr(standard, name)
        }


def _check_together(found: Mapping[str, Any]) -> None:
    """UsageError for options that do not go together."""
    gears, images = found.get("dynamic_dims"), found.get("insert_op_conf")
    if gears is not None and gears.kind == "dims" and images:
        raise UsageError(
            "--insert_op_conf and --dynamic_dims exclude each other", where={"flag": "--insert_op_conf"},
            remedy="use --dynamic_batch_size or --dynamic_image_size",
        )  # fmt: skip
    if images and found.get("input_format") in ("ND", "NCDHW", "NDHWC"):
        raise UsageError(
            f"--insert_op_conf needs images, --input_format is {found['input_format']}",
            where={"flag": "--input_format"},
            remedy="write --input_format=NCHW or NHWC, as the model has it",
        )  # fmt: skip
    mode = found.get("precision_mode") or DEFAULT
    if found.get("modify_mixlist") and POLICIES[mode].gray != "follow":
        raise UsageError(
            f"--modify_mixlist needs a mixed mode, --precision_mode is {mode}", where={"flag": "--modify_mixlist"},
            remedy="add --precision_mode=allow_mix_precision, or use --keep_dtype",
        )  # fmt: skip


def declared() -> Iterator[tuple[str, Option]]:
    """Name and declaration of every option, in order."""
    for found in fields(Options):
        if "option" in found.metadata:
            yield found.name, found.metadata["option"]


def _command_line(given: Mapping[str, Any]) -> str:
    """Flags and texts in one line; values from Python that are no text have none to show."""
    paths = {flag for name, about in declared() if about.value == "path" for flag in spellings(name, about)}
    silent = {flag for name, about in declared() if not about.recorded for flag in spellings(name, about)}
    texts = {flag: v for flag, v in given.items() if isinstance(v, (str, Path)) and flag not in silent}
    shown = {flag: Path(str(v)).name if flag in paths else v for flag, v in texts.items()}
    return " ".join(["atc --framework=5", *(f"--{flag}={value}" for flag, value in shown.items())])


def _wins(flag: str) -> bool:
    """True for a flag that replaces what another says of the same option."""
    return any(flag in about.overriding for _, about in declared())


def read(parse: Parser, flag: str, value: Any) -> Any:
    """The parser's value; UsageError where what Python gave is of no type that the option takes."""
    try:
        return parse(flag, value)
    except (TypeError, AttributeError, ValueError) as error:
        raise UsageError(
            f"--{flag} takes no {type(value).__name__} as {repr(value)[:80]}: {error}",
            where={"flag": f"--{flag}"}, remedy="give it as the flag is written, in one text",
        ) from error  # fmt: skip


def spellings(name: str, about: Option) -> dict[str, tuple[str, Parser]]:
    """Option and parser by each flag that sets the option."""
    return {name: (name, about.parse), **{flag: (name, parser) for flag, (parser, _) in about.also.items()}}


def default_text(name: str) -> str:
    """The default as a user would write it."""
    value = getattr(Options(), name)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value in (None, False) or value == {} else str(value)
