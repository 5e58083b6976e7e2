"""`atc key`: keys of signed packages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from atc.command_options import Json, guarded, out
from atc.console import print_json

key_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Keys of signed packages.")


@key_app.command("new")
def key_new(
    path: Annotated[Path, typer.Argument(help="private key file to write; the public one: .pub", show_default=False)],
    json: Json = False,
) -> None:
    """Makes an ed25519 key pair for atc convert --sign."""

    def work() -> int:
        from acl_runtime.om.keys import new_key

        public, fingerprint = new_key(path)
        if json:
            print_json({"private": str(path), "public": str(public), "fingerprint": fingerprint})
        else:
            out.print(f"private    {path}  (keep it to yourself)")
            out.print(f"public     {public}  {fingerprint}")
        return 0

    guarded(json, work)


@key_app.command("trust")
def key_trust(
    path: Annotated[Path, typer.Argument(help="public key file", show_default=False)], json: Json = False
) -> None:
    """Trusts a public key: native code that it signed runs as it is."""

    def work() -> int:
        from acl_runtime.om.keys import trust_key

        place, fingerprint = trust_key(path)
        if json:
            print_json({"public": str(place), "fingerprint": fingerprint})
        else:
            out.print(f"trusted    {place}  {fingerprint}")
            if "OPENATC_TRUST" in os.environ:
                out.print("note       OPENATC_TRUST is set: the keys that it lists count instead")
        return 0

    guarded(json, work)
