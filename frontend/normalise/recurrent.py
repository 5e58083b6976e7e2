"""Recurrent operators and Scan: forms that the newest opset cannot say are named, not guessed."""

from __future__ import annotations

from frontend.normalise.pending import PendingNode, form


@form("LSTM GRU RNN", before=7)
def _output_sequence(node: PendingNode) -> None:
    node.attrs.pop("output_sequence", None)


@form("Scan", before=9)
def _batched_scan(node: PendingNode) -> None:
    """Scan-8 has a batch axis and sequence lengths; under this name it is listed as unsupported."""
    node.op = "Scan-8"
