"""The evidence pack of a run: all that somebody needs to check its story without us, in one zip.

`write(run, out)` makes one; `verify.py` checks it, is put into each, and imports nothing of ours.
"""
