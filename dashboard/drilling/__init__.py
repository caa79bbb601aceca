"""Drills of this very instance: who asked for one, which runs now, what it showed, when the next is due.

`dashboard.drills` holds the drills themselves and knows nothing of the server; this package is the server's
side of them.
"""
