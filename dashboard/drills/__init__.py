"""The drills: failures made on purpose, and the evidence that each of them must leave.

Nothing in here knows the server. A drill is a user like any other: it talks to the HTTP API, its agents are
processes of their own that use the client, its provider and its network are its own, on loopback.
"""
