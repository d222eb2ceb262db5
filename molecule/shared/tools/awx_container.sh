#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# awx_container.sh USER FOLDER... -- COMMAND...
#
# Runs a command as a container of AWX runs it: as a user that no list has, with processes, memory and temporary files of its
# own, which end with it. The home folder of whoever starts this is away, but for these folders. To be started by
# `unshare --mount --pid --fork --kill-child --mount-proc`; SIGKILL to the child of that ends everything in it.
set -eu
user=$1
shift
mount -t tmpfs -o mode=0755 tmpfs /mnt
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
