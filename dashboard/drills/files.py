"""What the agent of a drill writes into its own folder: two halves, so that one may be missing."""

HALF = b"DRILL: the first half of a file.\n" * 64
WHOLE = HALF + b"DRILL: the second half of a file.\n" * 64
