"""Benchmarks of packages in the manner of the tool of that name: `python -m ais_bench --model m.om`, and the interface
`ais_bench.infer.interface.InferSession` for programs. Stands on `aclruntime` alone."""
