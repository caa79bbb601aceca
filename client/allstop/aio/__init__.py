"""The client in asyncio: the same gate, the same rules, the same errors (`allstop`), awaited.

from allstop.aio import AsyncClient

async with AsyncClient() as client, client.run("invoice-batch-0142") as run:
    charge = run.effect(key="charge:0142", kind="bank.charge", none_because="the bank offers no refund")
    await charge.send(bank.charge, order, idempotency_key=charge.key)
"""

from allstop.aio.client import AsyncClient
from allstop.aio.effect import AsyncEffect
from allstop.aio.permit import AsyncPermit
from allstop.aio.run import AsyncRun
from allstop.aio.step import AsyncStep
from allstop.aio.turn import AsyncTurn

__all__ = ["AsyncClient", "AsyncEffect", "AsyncPermit", "AsyncRun", "AsyncStep", "AsyncTurn"]
