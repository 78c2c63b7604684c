"""Contender in Python: aetcd's own lock, in one queue with all the others. See ../main.rs.

python3 -m venv venv && venv/bin/pip install -r ../../../benches/peers/python/requirements.txt
ETCDCTL_ENDPOINTS=http://127.0.0.1:2379 venv/bin/python contender.py counter 40
"""

import asyncio
import contextlib
import os
import sys
from urllib.parse import urlsplit

import aetcd


@contextlib.asynccontextmanager
async def locked(client, name, ttl=10):
    """Holds a lock that is shared with other languages.

    aetcd's lock is one key, put if absent: one of the clients that use this key holds it, and it does not see other keys. As a
    key *below* the name it is a contender in the shared queue, whose oldest key owns the lock. All Python programs that use
    this function share one such key, in no order among themselves.
    """
    lock = client.lock(name + b"/aetcd", ttl)
    await lock.acquire(timeout=None)
    work = asyncio.current_task()
    renewal = asyncio.create_task(renew(lock, work))  # aetcd renews nothing by itself
    try:
        yield await first(client, lock, name + b"/")
    finally:
        renewal.cancel()
        await lock.release()
        await lock.lease.revoke()  # else the lease stays until its TTL is over


async def first(client, lock, below):
    """Waits until no older contender is left; returns the revision at which that was so."""
    while True:
        queue = await client.get_prefix(below, sort_order="ascend", sort_target="create", keys_only=True)
        before = [kv for kv in queue if kv.create_revision < lock.revision]
        if all(kv.create_revision != lock.revision for kv in queue):
            raise RuntimeError("the lease expired while the contender waited")
        if not before:
            return queue.header.revision
        await client.watch_once(
            before[-1].key, start_revision=queue.header.revision + 1, kind=aetcd.EventKind.DELETE
        )


async def renew(lock, work):
    """Renews the lease, and stops the work when that fails, because another contender may own the lock then."""
    try:
        while True:
            await asyncio.sleep(lock.ttl / 3)
            if (await asyncio.wait_for(lock.refresh(), lock.ttl / 3)).TTL == 0:
                return work.cancel("the lease is over")
    except (aetcd.ClientError, asyncio.TimeoutError) as error:
        work.cancel(f"the lease is not renewed: {error}")


async def count(file):
    """Reads, waits, writes: correct only if no other contender does so in between."""
    with open(file) as text:
        n = int(text.read())
    await asyncio.sleep(0.005)
    with open(file, "w") as text:
        text.write(f"{n + 1}\n")
    return n + 1


async def main(file, rounds):
    etcd = urlsplit(os.environ["ETCDCTL_ENDPOINTS"].split(",")[0])
    async with aetcd.Client(host=etcd.hostname, port=etcd.port) as client:
        for _ in range(int(rounds)):
            async with locked(client, b"locks/counter") as token:
                n = await count(file)
                print(n, "aetcd", token, "locks/counter/aetcd", flush=True)


asyncio.run(main(*sys.argv[1:]))
