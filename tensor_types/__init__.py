"""The vocabulary that every room shares: dimension expressions, dtypes, formats and errors.

Takes nothing and gives plain immutable values; knows no graph, no tile program, no file and no device.
Everything above may import it; it imports only numpy and ml_dtypes.
"""
