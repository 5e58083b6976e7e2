"""Writes the reference pages that follow from the code: `python docs/generate.py`.

    operators.md    every declared operator, from its declaration, the families' answers and ONNX's own history
    flags.md        every command and flag, from the command line's functions and the table of ATC's flags
    chips.md        every chip, from the table of targets
    passes.md       every graph pass, from the table of passes
    errors.md       every error code, from `tensor_types.error_codes` and the places in the code that raise it

and one module, `acl_runtime/aicpu/schema_table.py`: what the runtime, which knows no graph, demands of the AI CPU tasks
of a package, from the declarations and ONNX's own type constraints.

`tests/docs` compares the files with what this gives.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("acl", "acl_runtime", "atc", "codegen", "frontend", "graph_opt", "tensor_types")
_NOTE = "<!-- Written by docs/generate.py; do not edit. -->\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


# --- operators


def operators() -> str:
    """docs/operators.md."""
    import onnx.defs

    from frontend.normalise import pending
    from graph_opt.ir import ops
    from graph_opt.ir.ops.registry import Op

    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            first[schema.name] = min(schema.since_version, first.get(schema.name, schema.since_version))

    rewritten = _rewritten()

    def row(op: Op) -> list[str]:
        domain, _, name = op.name.rpartition("::")
        family, dtypes = _native(op.name)
        if not family and op.name in rewritten:
            family = f"by {rewritten[op.name]}"
        return [name, str(first[op.name]) if not domain else "1", op.kind, family or "AI CPU", dtypes]

    declared: dict[str, list[Op]] = {}
    for op in ops.declared():
        domain = op.name.rpartition("::")[0] or "ai.onnx"
        if domain != "ai.onnx" or op.name in first:  # the compiler's own operators stand in no model
            declared.setdefault(domain, []).append(op)
    older = sorted(name for name in pending._RULES if name in first and ops.get(name) is None)
    parts = [
        "# Operators\n\n" + _NOTE,
        """
Every operator that a model may use. "Opset" is the oldest of its domain that has it; forms of all opsets from there on
are read as the newest one. "Native" names the family of tile kernels that computes it, and the dtypes that the family
takes; `region` fuses element-wise operators, `alias` shares the bytes of its input, and "by" names the
[pass](passes.md) that writes it as native operators. The rest, other dtypes, and forms that a family does not know run
on the AI CPU, in any dtype that ONNX allows. `atc convert` says which nodes of a model do.

Operators of your own: [custom operators](custom_operators.md).
""",
    ]
    for domain, found in declared.items():
        rows = [row(op) for op in sorted(found, key=lambda o: o.name)]
        parts.append(f"\n## {domain}\n\n{len(rows)} operators.\n\n")
        parts.append(table(["operator", "opset", "class", "native", "dtypes of the family"], rows))
        if domain == "ai.onnx":
            parts.append(f"\nOperators that are read as others: {', '.join(older)}.\n")
        forms = sorted(n.removeprefix(f"{domain}::") for n in pending._RULES if n.startswith(f"{domain}::"))
        if forms:
            parts.append(f"\nRead as operators of ai.onnx, in each of their forms: {', '.join(forms)}.\n")
    rest = sorted({n.rpartition("::")[0] for n in pending._RULES} - {"", *declared})
    for domain in rest:
        forms = sorted(n.removeprefix(f"{domain}::") for n in pending._RULES if n.startswith(f"{domain}::"))
        parts.append(f"\n## {domain}\n\nRead as operators of ai.onnx: {', '.join(forms)}.\n")
    return "".join(parts)


def _rewritten() -> dict[str, str]:
    """The pass that rewrites an operator, by operator, where one of its rules matches the operator alone or its name
    says so: expand-einsum."""
    from atc.pipeline import shared_passes
    from graph_opt.ir import ops
    from graph_opt.ir.patterns import OpPattern
    from graph_opt.ir.rules import RulePass

    found = {}
    for step in shared_passes():
        for rule in step.rules if isinstance(step, RulePass) else ():
            if isinstance(rule.pattern, OpPattern) and not any(isinstance(i, OpPattern) for i in rule.pattern.inputs):
                found.update(dict.fromkeys(rule.pattern.names, step.name))
        for op in ops.declared():
            word = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", op.name.rpartition("::")[2]).lower()
            if step.name == f"expand-{word}":
                found[op.name] = step.name
    return found


def _native(name: str) -> tuple[str, str]:
    """Family and dtypes of an operator's kernels."""
    from codegen.kernels import families
    from codegen.kernels.family_table import FAMILY_ROWS
    from codegen.lowering import RESHAPES

    if name in RESHAPES:
        return "alias", ""
    anchored = [t for t in families() if name in t.anchors]
    # Of the families without anchors the last one takes an operator by itself.
    absorbed = [t for t in reversed(families()) if not t.anchors and name in t.epilogue]
    for family in anchored + absorbed:
        return family.name, " ".join(sorted(FAMILY_ROWS[family.name].dtypes or ()))
    return "", ""


# --- flags


def flags() -> str:
    """docs/flags.md."""
    from atc.cli import app
    from atc.flag_fates import REFUSED, WITHOUT_EFFECT
    from atc.spelling import FLAGS

    parts = [
        "# Commands and flags\n\n" + _NOTE,
        """
`atc --version` prints the version, `atc <command> --help` what is here. `--json` prints one JSON object on standard
output, also for errors. [Errors](errors.md) lists exit codes, [environment](environment.md) the variables that count.
""",
    ]
    for name, function in _commands(app):
        arguments, options = _parameters(function)
        usage = " ".join([f"atc {name}", *(f"<{a[0]}>" if a[3] else f"[{a[0]}]" for a in arguments), "[flags]"])
        parts.append(f"\n## atc {name}\n\n{inspect.getdoc(function)}\n\n```\n{usage}\n```\n\n")
        rows = [[f"`{a[0]}`", a[1], a[2], a[4]] for a in (*arguments, *options)]
        parts.append(table(["argument or flag", "value", "default", "meaning"], rows))
    parts.append(
        "\n## ATC's own spelling\n\n`atc --model=m.onnx --framework=5 --output=m --soc_version=Ascend910B2 ...` "
        "converts. `--k=v` and\n`--k v` are the same; `--json` goes as well.\n\n"
    )
    parts.append(table(["flag", "value"], [[f"`--{flag}`", meaning] for flag, meaning in FLAGS.items()]))
    parts.append("\nAccepted without effect; `atc convert` takes them as well, and a line says so:\n\n")
    rows = [[f"`--{flag}`", ", ".join(known.values), known.why] for flag, known in sorted(WITHOUT_EFFECT.items())]
    parts.append(table(["flag", "values", "why it changes nothing"], rows))
    parts.append("\nRefused, except with the values shown:\n\n")
    rows = [[f"`--{flag}`", ", ".join(r.passes), r.code, r.remedy] for flag, r in sorted(REFUSED.items())]
    parts.append(table(["flag", "accepted values", "code", "what helps"], rows))
    return "".join(parts)


def _commands(app: Any, prefix: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    for command in app.registered_commands:
        name = command.name or command.callback.__name__.strip("_").replace("_", "-")
        yield f"{prefix}{name}", command.callback
    for group in app.registered_groups:
        yield from _commands(group.typer_instance, f"{prefix}{group.name} ")


def _parameters(function: Callable[..., Any]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """(name, value, default, required, meaning) of arguments, and of options."""
    hints = get_type_hints(function, include_extras=True)
    arguments: list[tuple[Any, ...]] = []
    options: list[tuple[Any, ...]] = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind, info = get_args(hints[name])[:2]
        required = parameter.default is inspect.Parameter.empty
        shown = info.show_default if isinstance(info.show_default, str) else parameter.default
        default = "" if required or shown in (None, "", False) else str(shown)
        base = next((t for t in (*get_args(kind), kind) if t is not type(None)), kind)
        several = "(may be repeated)" if "list" in str(kind) else ""
        if getattr(info, "hidden", False):
            continue
        if type(info).__name__ == "ArgumentInfo":
            arguments.append((name.upper(), _value(base), default, required, info.help or ""))
        else:
            # Inside Annotated, typer takes the first spelling for the default.
            spelled = [d for d in (info.default, *(info.param_decls or ())) if isinstance(d, str)]
            value = " ".join(filter(None, (info.metavar or _value(base), several)))
            options.append(
                ("`, `".join(spelled or [f"--{name.replace('_', '-')}"]), value, default, required, info.help or "")
            )
    return arguments, options


def _value(kind: Any) -> str:
    names = {bool: "", int: "number", float: "number", str: "text", Path: "path"}
    return names[next(t for t in (*get_args(kind), kind) if t in names)]


# --- chips


def chips() -> str:
    """docs/chips.md."""
    from codegen.targets import chip_names, nano_chips, stand_ins, target
    from tensor_types.dtypes import F16

    def row(name: str) -> list[str]:
        chip = target(name)
        memory = f"{chip.memory_bytes / 2**30:.0f} GiB" if chip.memory_bytes else "-"
        tera = 2 * chip.cube.rate(F16) * chip.cube_cores * chip.clock_mhz / 1e6
        cube, vector = (" ".join(sorted(e.rates)) for e in (chip.cube, chip.vector))
        cores = f"{chip.cube_cores} / {chip.vector_cores}"
        sizes = " / ".join(str(chip.memories[scope].bytes >> 10) for scope in ("UB", "L1", "L0C"))
        return [name, cores, str(chip.clock_mhz), sizes, str(chip.l2_bytes >> 20), memory, f"{tera:.1f}", cube, vector]

    columns = ["chip", "cores", "MHz", "UB / L1 / L0C, KiB", "L2, MiB", "memory", "TFLOPS, f16", "cube", "vector"]
    columns += ["derived"]
    rows = [[*row(name), " ".join(sorted(target(name).derived))] for name in chip_names()]
    parts = [
        "# Chips\n\n" + _NOTE,
        """
Names that `--soc_version` takes, in any case and without "Ascend" as well. Figures are those of CANN's platform
configuration; "cores" are those with a cube and those with a vector engine; the dense f16 peak is derived from cores
and clock, and so is what the last column names.

A conversion makes an instance of the model for each chip that is named: [what it does](convert.md#for-a-chip), and
[how to run it](run.md#on-a-chip) without a board. A cube multiplies the dtypes of its column: f32 products become f16
ones with f32 sums where it has no f32, unsigned bytes signed ones. What a vector engine has no dtype for runs on the AI
CPU, with the reason; 64-bit integers are computed as their two words.

""",
        table(columns, rows),
        "\nNames without figures of their own:\n\n",
        table(["name", "taken as", "why"], [[name, chip, why] for name, (chip, why) in sorted(stand_ins().items())]),
        f"\nRefused: {', '.join(nano_chips())}, whose models are files of another kind.\n",
    ]
    return "".join(parts)


# --- errors


def errors() -> str:
    """docs/errors.md."""
    from atc.foreign_codes import FOREIGN_CODES
    from tensor_types.error_codes import ERROR_CODES

    raised = raised_codes()
    rows = [
        [code, known.meaning, str(known.exit_code), known.remedy, ", ".join(sorted(raised.get(code, ())))]
        for code, known in sorted(ERROR_CODES.items())
    ]
    return (
        "# Errors\n\n" + _NOTE + """
Each error has a code, a message, the place (node, operator, tensor or flag) and a remedy that fits the case. With
`--json` a command prints `{"error": {"code", "message", "where": {"node", "op", "tensor", "flag"}, "remedy"}}` on
standard output; without, the same in lines on standard error. In Python they are exceptions, subclasses of
`tensor_types.errors.OpenAtcError`, with `code`, `message`, `where` and `remedy`.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | internal error; the traceback is in the log file that the message names |
| 2 | wrong command line, whatever the code |
| 3 | invalid model, package or input |
| 4 | an operator is not supported |
| 5 | memory or disk is exhausted |
| 6 | `atc compare`: an accuracy limit is broken, or something could not be judged |
| 7 | the environment: a missing package, a folder that cannot be written, a processor that is too old |
| 130 | interrupted |
| 143 | ended by the system (SIGTERM) |
| 141 | the reader of standard output has gone, as in `atc ... \\| head -1`; nothing is said about it |

"""
        + table(["code", "meaning", "exit code", "what helps", "raised in"], rows)
        + "\n`atc explain CODE` shows a row. Codes that ATC gives and openatc does not:\n\n"
        + table(["code", "meaning in ATC", "here"], [[c, *words] for c, words in sorted(FOREIGN_CODES.items())])
    )


@functools.cache
def raised_codes() -> dict[str, set[str]]:
    """Rooms by the code that they raise: as a literal, or by an error class whose default it is."""
    trees = {path: ast.parse(path.read_text()) for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}
    for tables in ("tensor_types/error_codes.py", "atc/foreign_codes.py"):
        del trees[ROOT / tables]
    kinds = (ast.ClassDef, ast.Constant, ast.Call)
    nodes = [
        (room, node)
        for path, tree in trees.items()
        for room in [path.relative_to(ROOT).parts[0]]
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    ]
    parents: dict[str, str] = {}
    defaults: dict[str, ast.Constant] = {}
    for _, node in nodes:
        if isinstance(node, ast.ClassDef):
            parents.setdefault(node.name, next((b.id for b in node.bases if isinstance(b, ast.Name)), ""))
            for item in node.body:
                if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "default_code":
                    assert isinstance(item.value, ast.Constant)
                    defaults[node.name] = item.value
    found: dict[str, set[str]] = {}
    for room, node in nodes:
        if isinstance(node, ast.Constant) and is_code(node.value) and node not in defaults.values():
            found.setdefault(str(node.value), set()).add(room)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            while name in parents and name not in defaults:
                name = parents[name]
            if name in defaults and not any(k.arg == "code" for k in node.keywords):
                found.setdefault(str(defaults[name].value), set()).add(room)
    return found


def is_code(value: object) -> bool:
    """True for the text of an error code."""
    return isinstance(value, str) and len(value) == 6 and value[0] == "E" and value[1:].isdigit()


def passes() -> str:
    """docs/passes.md."""
    from atc.pass_table import pass_table

    rows = [[row.name, row.does, "always" if row.required else "yes"] for row in pass_table()]
    parts = [
        "# Graph passes\n\n" + _NOTE,
        """
In the order in which they first run; simplification runs again between the others. `--disable_pass=NAME` leaves one
out, several times for several: results stay right, and what the pass would have made faster stays slow.
`--dump_ir=DIR` writes the graph after every pass as text, which parses back, and as ONNX for viewers such as Netron.
`--verify_ir` checks the graph after every pass and the plans at the end.

""",
        table(["pass", "what it does", "on"], rows),
    ]
    return "".join(parts)


# --- operators of the AI CPU


def aicpu_schemas() -> str:
    """acl_runtime/aicpu/schema_table.py."""
    from acl_runtime.aicpu import has_implementation
    from graph_opt.ir.ops import declared

    rows = []
    for op in sorted(declared(), key=lambda o: o.name):
        # The executor's own operators run there as well, inside of bodies.
        if has_implementation(op.aicpu or op.name):
            kinds = _dtype_kinds(op.name, len(op.inputs), "bcfhisu" if op.kind == "control" else "bcfisu")
            operands = " ".join(f"{name}:{kind}" for name, kind in zip(op.inputs, kinds, strict=True))
            attrs = {name: attr.type for name, attr in op.attrs.items()}
            if op.kind == "cube":
                attrs["result_dtype"] = "string"  # of passes: models have none, so it is not declared
            if op.name == "Fused":
                attrs["body"] = "graph"
            words = " ".join(f"{name}={kind}" for name, kind in attrs.items())
            rows.append(f"    {json.dumps(op.aicpu or op.name)}: ({json.dumps(operands)}, {json.dumps(words)}),\n")
    return (
        '"""What AI CPU operators take: written by docs/generate.py from their declarations; do not edit.\n\n'
        "A row is (operands, attributes). An operand is name:kinds; `?` marks an optional one, `*` any number.\n"
        "Kinds are f(loat), i(nt), u(int), b(ool), c(omplex), s(tring), h(andle of a sequence or an optional).\n"
        '"""\n# ruff: noqa: E501\n\nfrom __future__ import annotations\n\n'
        "ROWS: dict[str, tuple[str, str]] = {\n" + "".join(rows) + "}\n"
    )


def _dtype_kinds(name: str, operands: int, otherwise: str) -> list[str]:
    """Letters of the dtypes that ONNX's newest opset allows for each operand, and any opset for the first one;
    `otherwise` for what is not ONNX's. The newest may have fewer: ReduceLogSum lost the integers."""
    import onnx.defs

    domain, _, plain = name.rpartition("::")
    if not onnx.defs.has(plain, domain):
        return [otherwise] * operands
    newest = onnx.defs.get_schema(plain, domain=domain)
    versions = {newest.since_version}
    forms = [newest]
    for version in range(newest.since_version - 1, 0, -1):
        if onnx.defs.has(plain, version, domain):
            older = onnx.defs.get_schema(plain, version, domain)
            if older.since_version not in versions:
                versions.add(older.since_version)
                forms.append(older)
    kinds = []
    for number in range(operands):
        given = newest.inputs[min(number, len(newest.inputs) - 1)]
        older_too = forms if number == 0 else forms[:1]
        same = [i for form in older_too for i in form.inputs if i.name == given.name]
        kinds.append("".join(sorted({_letter(str(t)) for i in same for t in i.types})))
    return kinds


def _letter(kind: str) -> str:
    """The letter of a type as ONNX writes it, `tensor(float16)`."""
    if not kind.startswith("tensor("):
        return "h"
    inner = kind.removeprefix("tensor(")
    return "f" if inner.startswith(("bfloat", "double")) else inner[0]


PAGES: dict[str, Callable[[], str]] = {
    "operators.md": operators, "flags.md": flags, "chips.md": chips, "errors.md": errors, "passes.md": passes,
}  # fmt: skip


MODULES: dict[str, Callable[[], str]] = {"acl_runtime/aicpu/schema_table.py": aicpu_schemas}


def main() -> None:
    """Writes every page and module."""
    for name, module in MODULES.items():
        (ROOT / name).write_text(module(), encoding="utf-8")
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
