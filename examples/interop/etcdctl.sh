#!/bin/sh
# The contender that is a shell script: `etcdctl lock` runs a command under the lock. See main.rs.
#
#   ETCDCTL_ENDPOINTS=http://127.0.0.1:2379 sh etcdctl.sh counter 40
#
# The command is not ended when the lock is lost; with an etcdctl before 3.5 it is even begun without it.
turn=0
while [ "$turn" -lt "$2" ]; do
    # Reads, waits, writes: what nobody else may come in between of.
    "${ETCDCTL:-etcdctl}" lock --ttl 10 -- locks/counter sh -c '
        count=$(cat "$0") && sleep 0.005 && count=$((count + 1)) && echo "$count" > "$0" &&
        echo "$count etcdctl $ETCD_LOCK_REV $ETCD_LOCK_KEY"' "$1" || exit
    turn=$((turn + 1))
done
