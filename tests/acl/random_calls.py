"""Random calls of all functions with valid and invalid arguments, in any order, from several threads.

`python tests/acl/random_calls.py --calls 1000000` ends with 0 if every call gave a published code and nothing hung.
"""

from __future__ import annotations

import argparse
import faulthandler
import inspect
import random
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "runtime"), str(Path(__file__).parents[2])]

from acl_programs import dynamic_model, negative_model, static_model  # noqa: E402

import acl  # noqa: E402
from acl_runtime.device import Code  # noqa: E402

MODULES = (acl, acl.rt, acl.mdl, acl.op, acl.media, acl.util)
# They wait for ever by contract, compile for seconds, or stop what the other threads work on.
LEFT_OUT = re.compile(
    r"(start|stop)_thread|launch_callback|process_report|init|finalize|finalize_reference|compile|.*_ptr|ptr_to_.*"
    r"|execute(_v2|_with_handle)?|compile_and_execute|create_handle|cast|app_log|reset_device_force"
)


def functions() -> list[Callable[..., Any]]:
    found = []
    for module in MODULES:
        for name, item in vars(module).items():
            is_execution = module is acl.mdl and name in ("execute", "execute_v2")
            if hasattr(item, "__wrapped__") and (is_execution or not LEFT_OUT.fullmatch(name)):
                found.append(item)
    return found


class Caller:
    """One thread's calls."""

    def __init__(self, seed: int, paths: list[str]) -> None:
        self.random, self.paths = random.Random(seed), paths
        self.numbers = [0, 1, 2, 3, 7, (1 << 64) - 1, 1 << 47, -1]
        self.wrong: list[str] = []
        self.made = 0

    def argument(self, annotation: str) -> Any:
        pick = self.random
        if annotation.startswith("list"):
            return [self.number() for _ in range(pick.randrange(4))]
        if annotation.startswith("dict"):
            dims = [pick.randrange(-1, 9) for _ in range(pick.randrange(4))]
            return {"name": "", "dimCount": len(dims), "dims": dims}
        if annotation.startswith("str"):
            return pick.choice([*self.paths, "", "/nowhere", "x"])
        return float(pick.randrange(9)) if annotation == "float" else self.number()

    def number(self) -> int:
        if self.random.random() < 0.25:
            return self.random.choice([0, 1, 2, 4, 16, 24, 48, 64, 4096, -5, 1 << 40])
        return self.random.choice(self.numbers)

    def call(self, function: Callable[..., Any]) -> None:
        parameters = inspect.signature(function).parameters.values()
        arguments = [self.argument(str(p.annotation)) for p in parameters if p.default is p.empty]
        if function.__name__.endswith("_with_timeout"):
            arguments[-1] = self.random.choice([0, -7, 1, 3])
        try:
            result = function(*arguments)
        except TypeError as error:  # what is said of an argument of the wrong kind
            if "args parsing failed" not in str(error):
                self.wrong.append(f"{function.__name__}{tuple(arguments)} raised {error!r}")
            return
        except RuntimeError as error:  # what is said, as on a device, of a video channel without a callback
            if "set_channel_desc_callback" not in str(error):
                self.wrong.append(f"{function.__name__}{tuple(arguments)} raised {error!r}")
            return
        values = result if isinstance(result, tuple) else (result,)
        if isinstance(result, tuple) and result[-1] not in set(Code):
            self.wrong.append(f"{function.__module__}.{function.__name__}{tuple(arguments)} gave {result}")
        if result == (0, int(Code.INTERNAL_ERROR)) or result in (Code.INTERNAL_ERROR, Code.RT_INTERNAL_ERROR):
            said = acl.get_recent_err_msg()
            self.wrong.append(f"{function.__name__}{tuple(arguments)} gave {result}: {said}")
        for value in values:
            if isinstance(value, int) and value > 9 and value not in set(Code):
                self.numbers.append(value)
        if len(self.numbers) > 60:
            del self.numbers[self.random.randrange(8, 60)]

    def run(self, calls: int, all_functions: list[Callable[..., Any]]) -> None:
        acl.rt.set_device(0)
        acl.rt.create_stream()
        self.numbers += [acl.rt.create_context(0)[0], acl.rt.create_stream()[0], acl.rt.malloc(4096, 0)[0]]
        for path in self.paths:
            model = acl.mdl.load_from_file(path)[0]
            self.numbers.append(model)
            desc = acl.mdl.create_desc()
            acl.mdl.get_desc(desc, model)
            self.numbers.append(desc)
        for self.made in range(1, calls + 1):
            self.call(self.random.choice(all_functions))


def main(calls: int, n_threads: int, seed: int, seconds: float) -> int:
    faulthandler.dump_traceback_later(seconds, exit=True)
    acl.init()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        paths = [str(make(place / name)) for make, name in
                 ((negative_model, "a.om"), (static_model, "b.om"), (dynamic_model, "c.om"))]  # fmt: skip
        callers = [Caller(seed + n, paths) for n in range(n_threads)]
        found = functions()
        threads = [threading.Thread(target=c.run, args=(calls // n_threads, found)) for c in callers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        acl.finalize()
    wrong = [line for caller in callers for line in caller.wrong]
    made = sum(caller.made for caller in callers)
    print(f"{made} calls of {len(found)} functions, {len(wrong)} wrong", *wrong[:20], sep="\n")
    return 1 if wrong or made < calls // n_threads * n_threads else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600, help="time after which the calls count as hung")
    given = parser.parse_args()
    sys.exit(main(given.calls, given.threads, given.seed, given.seconds))
