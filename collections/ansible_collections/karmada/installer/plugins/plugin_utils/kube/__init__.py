# SPDX-License-Identifier: Apache-2.0
"""Requests to API servers: who we are, transport, watches, port-forward, objects, apply, wait, lease.

Imports the files beside it only: free of Ansible and of Karmada.

Requests
--------

**Trouble on the way.** Requests are sent again for 90 s when there was no answer or one that may pass (429, 5xx),
with growing pauses, not before ``Retry-After``. All of them can be: applies and deletes (by UID) come to the same, a
create that was carried out unheard answers with a conflict, and whoever calls it looks then. A conflict on an apply
is sent again as well, since it is right whatever others wrote.

**What answers has an end.** A server is taken no more from than its limits say (``answer.Limits``): 64 MiB for an
answer, unpacked while it comes and never as a whole before it is measured, 65 s from the first byte sent to the last
one read (an API server ends a request after 60 s itself; watches and followed logs have ends of their own), and for a
list as a whole 500,000 objects, 512 MiB and ten minutes; a page that is too large is asked for in smaller ones, and a
``continue`` that comes back is an error. Of a member, of which nothing large is read and of which sixteen are worked
with at once, it is 16 MiB with 300,000 values of JSON, 35 s, and 50,000 objects. A limit for each wait would not do:
a byte a second meets it for ever. So each connection reads until a moment (``Ending``), below TLS inside TLS and
port-forwards, too, and without a thread that watches. Beyond a limit is an error that says which, and that is not
asked for again.

**Text of others** is made printable where it comes in (``errors.from_status``, ``redaction.redacted``) and once
more where it goes to the terminal (``say``, the message of a step that fails): no control characters, no escape
sequences, nothing that turns the direction of writing, and a message of an API server is one line of bounded length.

**Who is the host cluster** has to be known: it gets the state with all keys. One that is not verified, or is reached
without TLS, is refused before the first request (``host_cluster.refuse_unverified``), unless the document allows it
by name.
"""
