#!/bin/sh
# User and role of a service in etcd, with the two ranges that its locks need and no other. Run it once, as a user who may
# (ETCDCTL_USER, ETCDCTL_ENDPOINTS, … as for etcdctl):
#
#   PASSWORD=… ETCDCTL_USER=root sh etcd-role.sh shop locks/
#
# The prefix is that of ETCD_LOCKED_PREFIX. Services that exclude each other share it. Give the role read and write on both ranges
# in whole: a part of the first, such as locks/orders/, is possible too, and refuses all other names.
set -eu
name=${1:?the name of the user} prefix=${2:-locks/}
: "${PASSWORD:?the password of the user}"

case $prefix in
*/) ;;
*) echo "the prefix ends in /: $prefix" >&2 && exit 2 ;;
esac

etcdctl role add "$name"
etcdctl role grant-permission "$name" readwrite --prefix=true "$prefix"        # the locks
etcdctl role grant-permission "$name" readwrite --prefix=true "${prefix%/}%s/" # the keys of sessions, next to them
printf '%s\n' "$PASSWORD" | etcdctl user add "$name" --interactive=false
etcdctl user grant-role "$name" "$name"
