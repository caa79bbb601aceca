"""The demo world: an agent, a bank and a mailer, all real processes on loopback. Nothing leaves the machine.

Only `setup` knows the server; the others use the client and the standard library.
"""
