"""`atc generate`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from atc.command_options import CustomOps, Json, Threads, guarded, out
from atc.console import print_json


def tell_batch(made: list[Any], json: bool) -> int:
    """Prints what was generated for each prompt of a batch."""
    if json:
        fields = ("tokens", "prefill_ms", "ms_per_token", "reason", "batched")
        print_json({name: [getattr(m, name) for m in made] for name in fields})
        return 0
    for number, m in enumerate(made):
        out.print(f"{number}: {' '.join(map(str, m.tokens))}")
        whose = "step of the batch" if m.batched else "token"
        out.print(f"   ended by {m.reason}; {m.ms_per_token:.2f} ms a {whose}")
    if not all(m.batched for m in made):
        out.print("one text after another: the decoder's inputs take no batch of texts of unlike lengths")
    return 0


def generate(
    model: Annotated[Path, typer.Argument(help="package, ONNX file, or folder with genai_config.json",
                                          show_default=False)],
    prompt: Annotated[str | None, typer.Option(help="text; needs tokenizer.json beside the model")] = None,
    prompt_tokens: Annotated[list[Path] | None, typer.Option(
        "--prompt-tokens", help="token ids as .npy; several make a batch")] = None,
    most: Annotated[int, typer.Option("--max", help="most tokens", min=1)] = 128,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token")] = 0.0,
    top_k: Annotated[int, typer.Option(help="choose among the k likeliest; 0 for all")] = 0,
    top_p: Annotated[float, typer.Option(help="choose among the likeliest that reach p")] = 1.0,
    repetition_penalty: Annotated[float, typer.Option(help="above 1 avoids what was said")] = 1.0,
    seed: Annotated[int, typer.Option(help="of the choice", min=0)] = 0,
    stop: Annotated[list[str] | None, typer.Option(help="text that ends it")] = None,
    stop_token: Annotated[list[int] | None, typer.Option(help="token that ends it")] = None,
    chunk: Annotated[int, typer.Option(help="tokens of the prompt at a time; 0 for all", min=0)] = 0,
    guess: Annotated[int, typer.Option(help="tokens guessed at a time from what the text repeats", min=0)] = 0,
    draft: Annotated[Path | None, typer.Option(help="a smaller decoder that guesses instead, 4 at a time")] = None,
    precision_mode: Annotated[str, typer.Option(help="as of atc convert, for an ONNX file")] = "",
    capacity: Annotated[int, typer.Option(help="rows of an ONNX file's caches; 0: they grow", min=0)] = 2048,
    threads: Threads = 1,
    custom_op: CustomOps = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Generates with a language model: text where there is a tokenizer, else token ids."""

    def work() -> int:
        from acl_runtime.generation import Generator, Sampling
        from atc.generating import Stream, Words, open_decoder, read_tokens
        from atc.usage import UsageError

        if (prompt is None) == (not prompt_tokens):
            raise UsageError("one of --prompt and --prompt-tokens is needed", where={"flag": "--prompt"},
                             remedy='atc generate model.onnx --prompt "Once upon a time"')  # fmt: skip
        if stop and prompt is None:
            raise UsageError("stop strings need text", where={"flag": "--stop"}, remedy="give --prompt or --stop-token")
        sampling = Sampling(temperature, top_k, top_p, repetition_penalty)
        with ExitStack() as cleanup:
            many = [read_tokens(path) for path in prompt_tokens or ()]
            # States hold one sequence: the caches of a batch are inputs and outputs.
            opened = open_decoder(model, threads, precision_mode, cleanup, capacity if len(many) < 2 else 0)
            drafted = open_decoder(draft, threads, "", cleanup, capacity).decoder if draft else None
            generator = Generator(opened.decoder, chunk=chunk, guess=guess or 4 * bool(draft), draft=drafted)
            stops = (*opened.stop, *(stop_token or ()))
            if len(many) > 1:
                return tell_batch(generator.generate_batch(many, most, sampling, stop=stops, seed=seed), json)
            words = Words(opened.tokenizer) if prompt is not None else None
            tokens = words.tokens(prompt or "") if words else many[0]
            stream = Stream(words, stop or ()) if words else None

            def told(token: int) -> bool:
                if stream is None:
                    return False
                piece, ends = stream.add(token)
                if piece and not json:
                    print(piece, end="", flush=True)
                return ends

            made, _ = generator.generate(tokens, most, sampling, stop=stops, seed=seed, on_token=told)
        if json:
            record: dict[str, Any] = {
                "tokens": made.tokens, "prefill_ms": made.prefill_ms, "ms_per_token": made.ms_per_token,
                "prompt_tokens": len(tokens), "reason": made.reason, "accepted": made.accepted,
            }  # fmt: skip
            print_json({**record, "text": stream.text} if stream else record)
            return 0
        out.print("" if stream else " ".join(map(str, made.tokens)))
        rate = f"{1000 / made.ms_per_token:.1f} tokens/s" if made.ms_per_token else "one token"
        out.print(
            f"prefill    {made.prefill_ms:.1f} ms for {len(tokens)} tokens; then {made.ms_per_token:.2f} ms a token "
            f"({rate}); ended by {made.reason}"
        )
        return 0

    guarded(json, work, custom_op)
