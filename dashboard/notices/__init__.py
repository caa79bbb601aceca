"""Notices: Allstop's own messages about stops, unknowns and reviews. No stop of anything holds them.

A notice is a row written in the transaction of the evidence line that it is about (`outbox`), so none is
lost. It is fanned out to the endpoints and people who asked, and sent outside any transaction (`sending`):
at least once, with an id that stays the same. Not to be confused with a run's own messages, which are
deliveries (effects.deliveries): those go through the gate and are held by their run's stop.
"""
