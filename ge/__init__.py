"""The Python name under which scripts call ATC: `python -m ge.pyatc --model=... --framework=5 ...`.

Takes the words of a command line; knows nothing but `atc`.
"""
