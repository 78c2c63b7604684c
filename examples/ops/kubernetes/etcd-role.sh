#!/bin/sh
# User and role of a service in etcd, with the two ranges that its locks need and no other. Run it as a user who may
# (ETCDCTL_ENDPOINTS, ETCDCTL_USER, … as for etcdctl; the password with the name or in ETCDCTL_PASSWORD, because etcdctl cannot ask
# for it here):
#
#   PASSWORD=… ETCDCTL_USER=root:… sh etcd-role.sh shop locks/
#
# A run that failed in the middle is finished by another one. The password of a user who is there already stays as it is.
#
# The prefix is that of ETCD_LOCKED_PREFIX. Services that exclude each other share it. Give the role read and write on both ranges
# in whole. A part of the first, such as locks/orders/, refuses all other names: grant it by hand, as this script makes the
# second range of its argument.
set -eu
name=${1:?the name of the user} prefix=${2:-locks/}
: "${PASSWORD:?the password of the user}"

case $prefix in
*/) ;;
*) echo "the prefix ends in /: $prefix" >&2 && exit 2 ;;
esac

# With a name alone etcdctl would ask for the password.
case ${ETCDCTL_USER-} in
'' | *:*) ;;
*) [ -n "${ETCDCTL_PASSWORD-}" ] || { echo "write ETCDCTL_USER=$ETCDCTL_USER:PASSWORD" >&2 && exit 2; } ;;
esac

# Does it, unless that has been done already.
once() {
  said=$("$@" 2>&1) || case $said in
  *"already exist"*) ;;
  *) echo "$said" >&2 && exit 1 ;;
  esac
}

once etcdctl role add "$name"
etcdctl role grant-permission "$name" readwrite --prefix=true "$prefix"        # the locks
etcdctl role grant-permission "$name" readwrite --prefix=true "${prefix%/}%s/" # the keys of sessions, next to them
printf '%s\n' "$PASSWORD" | once etcdctl user add "$name" --interactive=false
etcdctl user grant-role "$name" "$name"
