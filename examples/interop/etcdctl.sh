#!/bin/sh
# Contender in shell: `etcdctl lock` runs a command under the lock. See main.rs.
#
#   ETCDCTL_ENDPOINTS=http://127.0.0.1:2379 sh etcdctl.sh counter 40
#
# etcdctl does not end the command when the lock is lost; before 3.5 it may even start the command without the lock.
round=0
while [ "$round" -lt "$2" ]; do
    # Reads, waits, writes: correct only if no other contender does so in between.
    "${ETCDCTL:-etcdctl}" lock --ttl 10 -- locks/counter sh -c '
        count=$(cat "$0") && sleep 0.005 && count=$((count + 1)) && echo "$count" > "$0" &&
        echo "$count etcdctl $ETCD_LOCK_REV $ETCD_LOCK_KEY"' "$1" || exit
    round=$((round + 1))
done
