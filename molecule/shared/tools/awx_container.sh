#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# awx_container.sh [--listed] USER FOLDER... -- COMMAND...
#
# Runs a command as a container of AWX runs it: as a user that no list has, with processes, memory and temporary files of its
# own, which end with it. The home folder of whoever starts this is away, but for these folders. To be started by
# `unshare --mount --pid --fork --kill-child --mount-proc`; SIGKILL to the child of that ends everything in it. With --listed the
# list of users has this one there, as the entry point of an execution environment adds it.
set -eu
listed=
if [ "$1" = --listed ]; then
  listed=yes
  shift
fi
user=$1
shift
mount -t tmpfs -o mode=0755 tmpfs /mnt
if [ "$listed" ]; then
  { cat /etc/passwd && echo "runner:x:$user:0:Ansible Runner:$PWD:/bin/sh"; } >/mnt/passwd
  mount --bind /mnt/passwd /etc/passwd
fi
count=0
for folder; do
  [ "$folder" != -- ] || break
  count=$((count + 1))
  mkdir "/mnt/$count"
  mount --bind "$folder" "/mnt/$count"
done
home=$(getent passwd "$(id -u)" | cut -d: -f6)
mount -t tmpfs -o mode=0755 tmpfs "$home"
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
number=0
while [ "$1" != -- ]; do
  number=$((number + 1))
  mkdir -p "$1"
  mount --bind "/mnt/$number" "$1"
  shift
done
shift
umount --lazy /mnt
exec setpriv --reuid "$user" --regid 0 --clear-groups --bounding-set -all --inh-caps -all --no-new-privs "$@"
