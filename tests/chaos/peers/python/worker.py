#!/usr/bin/env python3
"""A worker of the torture that locks by aetcd.

    worker.py worker <witness> <process> <seed> <mix> <sabotage>

What it says to the witness is described in src/history.rs: one line of JSON each. It makes exclusive calls only. aetcd talks to one
endpoint and renews nothing by itself: each call renews its lease every third of its TTL, and its body stops once etcd says that the
lease is gone, or a TTL after the last renewal that was answered was sent.
"""

import asyncio
import json
import os
import random
import sys
import time
from urllib.parse import urlsplit

import aetcd

HOT, COLD, LONG, ROAMERS, WAIT, POLL = 6, 200, 12, 10, 10, 0.01
PATIENCE = 40  # seconds, longer than any fault lasts


class Witness:
    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.awaited, self.calls, self.draining = {}, 0, False

    def say(self, at, what, **said):
        line = json.dumps({"at": at, what: said})
        self.writer.write(line.encode() + b"\n")

    async def wait(self, at, what, call, **said):
        """Says something, and waits until the witness knows."""
        known = self.awaited[call] = asyncio.get_running_loop().create_future()
        self.say(at, what, call=call, **said)
        await known

    async def acknowledge(self):
        while line := await self.reader.readline():
            known = self.awaited.pop(int(line), None)
            if known and not known.done():
                known.set_result(None)
        os._exit(1)  # the witness has ended


def now():
    """Reads the clock that all processes share, in nanoseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Caller:
    def __init__(self, witness, login, seed):
        self.witness, self.login, self.random = witness, login, random.Random(seed)

    async def run(self, task):
        while not self.witness.draining:
            if task < HOT:
                await self.call("hot", "hot", task, self.between(2, 30))
            elif (n := self.random.randrange(10)) < 6:
                await self.call("exclusive", "hot", self.random.randrange(HOT), self.between(2, 60))
            elif n < 9:
                await self.call("cold", "cold", self.random.randrange(COLD), self.between(2, 60))
            else:
                await self.call("long", "long", self.random.randrange(LONG), self.between(3000, 12000), None)
            await asyncio.sleep(self.between(10, 100))

    async def call(self, kind, family, n, lasts, wait=WAIT):
        witness, name, ttl = self.witness, f"{family}/{n}", 2 if n % 2 == 0 else 10
        call = witness.calls = witness.calls + 1
        asked = {"kind": kind, "names": [name], "mode": "exclusive", "wait": wait and wait * 1000, "ttl": ttl * 1000, "min_hold": 0}
        witness.say(now(), "asked", call=call, asked=asked)
        client = self.login.client
        try:
            result = await self.locked(client, call, name, ttl, lasts, wait)
        except asyncio.TimeoutError:
            result = "busy"
        except Exception as error:  # whatever aetcd and grpc raise
            result = {"refused": f"{type(error).__name__}: {error}"}
            if "auth token" in str(error):
                await self.login.renew(client)
        witness.say(now(), "returned", call=call, result=result)

    async def locked(self, client, call, name, ttl, lasts, wait):
        lock = client.lock(f"locks/{name}/aetcd".encode(), ttl=ttl)
        if not await asyncio.wait_for(lock.acquire(timeout=wait), wait):
            return "busy"
        lives = Lives()
        renewal = asyncio.create_task(renew(lock, lives))
        try:
            # aetcd does not say when it sent the request for the lease, so it is renewed at once.
            await lives.wait(ttl)
            if not await self.body(call, name, lock.revision << 16, lasts, lives):
                return {"lost": "Gone" if lives.gone else "Expired"}
            await asyncio.wait_for(lock.release(), 2)
            return "done"
        finally:
            renewal.cancel()
            if lock.lease:
                asyncio.create_task(quietly(lock.lease.revoke()))

    async def body(self, call, name, token, lasts, lives):
        """Works under the lock; false if it was lost before."""
        witness, held = self.witness, lambda: (now(), lives.held())
        at, is_held = held()
        if not is_held:
            return False
        await witness.wait(at, "begun", call, held=True, tokens=[[name, token]])
        at, is_held = held()
        if is_held:
            await witness.wait(at, "write", call, name=name, token=token, held=True)
        end = time.monotonic() + lasts
        while is_held and time.monotonic() < end and not witness.draining:
            at, is_held = held()
            if is_held:
                witness.say(at, "polled", call=call, held=True)
                await asyncio.sleep(POLL)
        at, is_held = held()
        witness.say(at, "ended", call=call, held=is_held, how="done" if is_held else "dropped")
        return is_held

    def between(self, least, most):
        return self.random.randint(least, most) / 1000


class Login:
    """A client that has logged in. aetcd does so when it connects, and at no other time, while etcd forgets tokens when it restarts."""

    def __init__(self, **arguments):
        self.arguments, self.client, self.connecting = arguments, None, asyncio.Lock()

    async def renew(self, refused=None):
        """Logs in anew, unless another task has done so since this client was refused; false if etcd does not log in now."""
        async with self.connecting:
            if self.client is not refused:
                return True
            client = aetcd.Client(**self.arguments)
            try:
                await asyncio.wait_for(client.connect(), WAIT)
            except Exception:  # the next call tries again
                asyncio.create_task(quietly(client.close()))
                await asyncio.sleep(0.2)
                return False
            self.client = client  # calls under way keep the one before
            return True


class Lives:
    """What is known of a lease: until when it lives at least, and whether etcd says that it is gone."""

    def __init__(self):
        self.until, self.gone, self.known = 0, False, asyncio.Event()

    def held(self):
        return not self.gone and now() < self.until

    async def wait(self, most):
        """Waits for the first answer."""
        try:
            await asyncio.wait_for(self.known.wait(), most)
        except asyncio.TimeoutError:
            pass

    async def renew(self, lock):
        sent = now()
        answer = await lock.refresh()
        if answer.TTL == 0:
            self.gone = True
        else:
            self.until = sent + lock.ttl * 1_000_000_000
        self.known.set()


async def renew(lock, lives):
    while not lives.gone:
        try:
            await asyncio.wait_for(lives.renew(lock), lock.ttl / 3)
        except Exception:  # tried again: the lease may live on
            pass
        await asyncio.sleep(lock.ttl / 3)


async def quietly(request):
    try:
        await asyncio.wait_for(request, 1)
    except Exception:  # the lease runs out by itself
        pass


async def main():
    _, _, address, process, seed, *_ = sys.argv
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(process.encode() + b"\n")
    witness = Witness(reader, writer)
    asyncio.create_task(witness.acknowledge())
    endpoints = os.environ["ETCD_LOCKED_ENDPOINTS"].split(",")
    etcd = urlsplit(endpoints[int(seed) % len(endpoints)])
    user, password = os.environ["ETCD_LOCKED_USER"].split(":")
    login = Login(host=etcd.hostname, port=etcd.port, username=user, password=password)
    end = time.monotonic() + PATIENCE
    while not await login.renew():
        if time.monotonic() > end:
            sys.exit("etcd does not log in")
    callers = [Caller(witness, login, f"{seed}/{task}") for task in range(HOT + ROAMERS)]
    tasks = [asyncio.create_task(caller.run(task)) for task, caller in enumerate(callers)]
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    witness.draining = True
    await asyncio.wait(tasks, timeout=40)
    await quietly(login.client.close())
    witness.say(now(), "drained", left=0, leases=0)
    await writer.drain()


asyncio.run(main())
