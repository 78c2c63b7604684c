"""A worker of the benches that locks by aetcd; the protocol is that of benches/src/worker."""

import argparse
import asyncio
import json
import os
import struct
import sys
import time
from collections import Counter
from urllib.parse import urlsplit

import aetcd

args = argparse.ArgumentParser()
args.add_argument("--peer")
args.add_argument("--work")
args.add_argument("--tasks", type=int, default=1)
args.add_argument("--names", type=int, default=1)
args.add_argument("--endpoint", required=True)
args.add_argument("--seconds", type=float, default=1)
args.add_argument("--witness")
args = args.parse_args()


class Tally:
    """What all tasks have done."""

    def __init__(self):
        self.count = 0
        self.total = 0
        self.latency = Counter()  # how many calls took so many nanoseconds, to ten microseconds
        self.counters = [0] * args.names
        self.changes = 0  # calls that came after one of another process

    async def run(self, client, task, begin, end, witness):
        # Each task goes through names of its own, in turn: one, if there are as many names as tasks.
        name = task % args.names
        while (start := time.time()) < end:
            lock = client.lock(b"aetcd/%d" % name, ttl=60)
            if not await lock.acquire(timeout=None):
                raise RuntimeError("not acquired")
            if witness is None:
                self.counters[name] += 1
            else:
                seen, last = struct.unpack("<QQ", os.pread(witness, 16, 16 * name))
                self.changes += last != os.getpid()
                os.pwrite(witness, struct.pack("<QQ", seen + 1, os.getpid()), 16 * name)
            await lock.release()
            name = (name + args.tasks) % args.names
            self.total += 1
            stop = time.time()
            if begin <= stop < end:
                self.count += 1
                self.latency[round(max(int((stop - start) * 1e9), 0), -4)] += 1


async def main():
    witness = os.open(args.witness, os.O_RDWR) if args.witness else None
    etcd = urlsplit(args.endpoint)
    async with aetcd.Client(host=etcd.hostname, port=etcd.port) as client:
        await client.get(b"aetcd")
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            order, at = line.split()
            assert order == "go", line
            begin = int(at) / 1e3
            end = begin + args.seconds
            tally = Tally()
            await asyncio.gather(
                *(tally.run(client, i, begin, end, witness) for i in range(args.tasks))
            )
            with open("/proc/self/statm") as statm:
                rss = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            answer = {
                "count": tally.count,
                "total": tally.total,
                "seconds": args.seconds,
                "latency": tally.latency,
                "witnessed": sum(tally.counters),
                "changes": tally.changes,
                "rss": rss,
            }
            print(json.dumps(answer), flush=True)


asyncio.run(main())
