# SPDX-License-Identifier: Apache-2.0
"""Requests to API servers: identity, transport, watches, port-forward, objects, apply, wait, lease.

Imports the files beside it only: free of Ansible and of Karmada.

Requests
--------

**Retries.** A request is sent again for up to 90 s when there was no answer or a transient one (429, 5xx), with
growing pauses and never before ``Retry-After``. Every request can be repeated: applies and deletes (by UID) are
idempotent, and a create whose answer was lost ends in a conflict, after which its caller looks. A conflict on an apply
is retried as well, since the apply is right whatever others wrote.

**Every answer is bounded.** No more is read from a server than its limits allow (``answer.Limits``): 64 MiB for an
answer, unpacked and measured as it arrives; 65 s from the first byte sent to the last byte read (an API server itself
ends a request after 60 s; watches and followed logs have ends of their own); and 500,000 objects, 512 MiB and ten
minutes for a whole list. A page that is too large is requested in smaller ones, and a repeated
``continue`` is an error. A member, from which nothing large is read and of which sixteen are worked on at once, gets
16 MiB with 300,000 JSON values, 35 s, and 50,000 objects. A timeout for each read would not do, since one byte a
second satisfies it for ever. So each connection reads until a deadline (``Ending``), also below TLS in TLS and
port-forwards, and without a watchdog thread. Exceeding a limit raises an error that names it and is not retried.

**Text of others** is made printable where it arrives (``errors.from_status``, ``redaction.redacted``) and once
more where it goes to the terminal (``say``, the message of a step that fails): no control characters, no escape
sequences, no changes of text direction, and a message of an API server is one line of bounded length.

**Waits** get what serves their targets as data (``causes.Servers``: a cluster and its workloads). ``causes.Causes``,
and nothing else, finds out why pods are not ready and when that is hopeless. ``progress.Progress`` makes the lines
that a wait shows.

**The host cluster's identity** has to be certain, because that cluster gets the state with all keys. A server that is
not verified, or that is reached without TLS, is refused before the first request (``host_cluster.refuse_unverified``),
unless the document allows it by name.
"""
