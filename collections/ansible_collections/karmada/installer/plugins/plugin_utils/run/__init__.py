# SPDX-License-Identifier: Apache-2.0
"""One step's hold on one control plane: facts, state, lock, handover, the bases of actions. The only package that
imports Ansible.

Imports kube, components, document, pki, artifacts, render.

A run and what it is composed of
--------------------------------

``Run`` is one action's view of one instance and its hand on it. It is a ``Facts`` (document, Secrets, sources) with

* a **place** (``place.py``, ``on_hosts.py``): ``InPods``, ``PodsAboveHosts`` or ``OnHosts``. All that differs by where
  the components run is a method of it, abstract in ``Place``: addresses, certificates, how the API server is reached,
  what hosts are given. ``action.py`` chooses it by the document. Steps that have two forms as a whole, for a host
  cluster and for hosts, ask ``in_pods``; a third way to install would have to answer there, too.
* a **store** (``store.py``), which the place names: ``SecretStore`` (Secret and Lease) or ``HostFiles``. It reads and
  writes the state and holds the lock.
* **snapshots** (``snapshot.py``): ``Live`` is what the place shows at one time, ``Snapshot`` what follows from that
  and from one state. Neither changes. Where the lock was taken or the host cluster has said something new, the run
  makes new ones (``look_again``, ``go_on_with``), and nothing of the old ones is used again.

State, lock, ownership
----------------------

**State.** Nothing that matters is on the machine that runs Ansible. The Secret ``<name>-installer-state`` holds the
owner UUID, the version chosen, CA keys, service-account and encryption key, etcd's token and data generation, the
journal of the running operation, UIDs of what was created on the host cluster and on each member, how each member was
reached, what tags of images led to first, and the last document that was carried out. Files above 64 KiB are packed,
so that 5,000 members fit into one Secret. A state that cannot be read is an error, never a reason to begin anew. It
is input like a document: whoever can write it could have written anything, so ``recorded.read_state`` holds each
entry against the schema of its kind before any of it is used, and what becomes a word of a command line is looked at
once more where that is built (``ssh.word``).

The state has a format number and names the version of the collection that wrote it. Older formats are read for ever:
a field that they did not have gets its default, one that they had must be there. So an installation of an earlier
version is adopted by the first run that has something to write; nothing is converted beforehand. A newer format is
refused with the version to use, because what it holds beyond ours would be lost. The recorded document is compared
after the defaults of today's schema have been filled in.

**Images.** A digest in the document or in the lock file is part of the reference, in pods as for programs, and the
tag has no effect. Without one, the digest that a tag led to is in the state under the whole reference. For programs
it is looked up by the machine with Ansible, compared in preflight and again when the program is fetched, and recorded
before the first host gets it: the step ``programs`` comes before the journal is opened on hosts, everywhere. A run
that is killed before has recorded nothing and put nothing anywhere. For pods the digest is read from their nodes at
the end of a run that had something to do, and only reported: rendering it would restart them.

**Lock.** The Lease admits one writing run. It is taken at the first write of a run, renewed while its actions work,
kept from step to step and released at the end. A holder that died is recognised: at once on the same machine (none of
its processes lives), by silence elsewhere. Every attempt of a write asks the lock first, however late it is made:
when the API server is away for longer than the lock lasts, writing pauses until a renewal has shown that nobody took
it. Its time is counted by a clock that goes on while the machine sleeps (``CLOCK_BOOTTIME``).

A run that stood still as a whole (a virtual machine that was paused) cannot know in time that its lock is gone. So
the state has a fence of its own: it is applied with the UID and the resourceVersion as which it was read under the
lock, and a first one with a resourceVersion that no object has, which creates it and replaces none. A conflict is a
lost lock, unless what is there is what was to be written: then an attempt that nobody heard of got through.

**The end of a run.** Actions work in forks of ansible-playbook, and each fork has a session of its own: no signal to
a terminal, a job or a process group reaches it, and ansible-runner cancels by killing the group. So each fork of ours
has the kernel kill it when the first process ends, and each program that it waits for when the fork ends
(``PR_SET_PDEATHSIG``). Whether anything of a run lives is shown by a name in the kernel that the first process binds
and every fork inherits: only when it is gone, the run is dead. SIGTERM and SIGHUP, upon which Ansible would just end,
are answered in the first process as SIGINT is: forks are killed, the lock is given back, the private folder goes,
then the process ends by that signal. The journal is left open, which is what says that the operation was interrupted.
Locks on plain hosts stay; the next run from the same machine takes them over. Code of a collection gets into the
first process when a strategy loads the class of an action; that is where the handlers are set (``end.attend``).

Two instances whose names meet (``x`` and ``x-kube`` would both have a ``x-kube-controller-manager``) are kept apart
by preflight, which looks for objects of others. If two first installs start together, neither has objects to find:
each writes its Lease, then looks for the other's, so that at most one of them goes on.

**A namespace** that we made, for this instance or for one that has left since, is deleted only when nothing of
anybody else is in it, of whatever kind the cluster has; where that may not be looked at, it stays.

**Ownership.** An object is ours if it carries our owner label *and* its UID is on record, or it shows our field
manager as its maker (a run that was killed between creating and recording). Only such objects are deleted. An object
under one of our names that is not ours is a problem that preflight reports.

Plain hosts
-----------

Mode Binary has the same engine, table and report. ``playbooks/on_hosts/`` run on the group ``karmada_on_hosts``: the
hosts, and ``karmada_control`` before them, where steps are done that concern the control plane as a whole.

::

     host_observe ──> Handover ──> OnHosts, HostFiles ──> HostView.tree() ──> _host_tree on the host
     (each host:      (files of    (agreed state)         (what one           (writes what differs,
      state, files,    this run)      │                    host is to be)      starts, restarts, asks health)
      facts, lock)                    └─> journal: the state, back to every host

* **An action computes on the controller, a module acts on the host.** ``host_components`` and its like render a tree
  out of state and document and hand it to ``_host_tree``; that knows users, folders, files and units, and nothing of
  Karmada. One step is one round trip to each host.

* **``Handover``** is the private folder of the run (``private_folder``). What was seen on hosts and the state hold
  keys, so they are never variables of Ansible, which callbacks and caches show. It is in memory where there is a
  place (``$XDG_RUNTIME_DIR``, else ``/dev/shm``), else in Ansible's own temporary folder, and named after the run's
  first process. It goes at the run's end; what a run left that was killed (SIGKILL, loss of power), the next one of
  the same user on that machine removes once it is known to be dead.

* **The state** lies on each host with an API server; the others of the control plane know its serial and digest. Each
  version of the state names its predecessors. Every write reaches all hosts before what it records is done, so honest
  hosts differ by one step; ``state_on_hosts.choose`` takes the newest that more than half of the hosts have, or had
  one step ago, and names a host whose state is not of this line. A copy is known by the digest that the controller
  computes of it. Hosts keep the copy before the last, because after a kill it may be the one that counts, and refuse
  to write over a state that the run has not seen. A state goes to a host by way of ``journal`` only: before the
  first change with the journal open, after etcd's bootstrap, and at the end, also of a run that failed.

* **What a host answers is input** (``host_answer``): it is used in the form that our module gives it, or told as a
  refusal.

* **The lock** is on every host, taken by the first step and released by the last. It lies in ``/run``, because a boot
  ends whoever held it, and counts seconds since the boot. Every module that changes a host is given the run's name
  and refuses where the lock is another's or gone (``host_lock.working``); while it works it has the kernel's lock of
  the file as well, which nobody takes over before the process has ended. ``HostAction.on_host`` passes the name, and
  no action has to think of it.

* **Keys of components** are issued for a host and kept there; the next run reads them from it and reissues for a
  reason only.

* **The state names every host** on which anything was put, before it is put there. So a host that has left the
  document is found, also after a kill: ``hosts_leaving`` says how it is reached, ``add_host`` makes it known to the
  run, and the role ``host_leave`` works on it by delegation, at the end, because a play has the hosts that it began
  with.

* **Whose it is**: units carry the owner as ``X-KarmadaOwner``, users in their comment. What carries another one
  stays.

* **Files of components** are root's, readable for the group of the component's user. So nobody but root puts anything
  into their folders, and where root reads or writes there it follows no link (``O_NOFOLLOW``), whoever has had the
  folder before.

* **What a host says** (journals, names of files, words of ssh) passes ``redaction`` in ``HostAction``, where it
  arrives.

Every play says ``strategy: linear``, since all of this rests on hosts that go on together and on tasks that are done
once. A configured ``free`` or ``host_pinned`` would restart all hosts at the same time.

The order of an install follows from this: files and units come first and on all hosts at once, and only what is
*down* is started, because members of etcd become healthy together only, and starting cuts nobody off. What runs with
older settings is restarted in a pass of its own, host after host, each waited for; the first that does not come back
ends the run. Whether it does is told by the hash of everything that a unit reads, which is in the unit's environment
and so in that of its process: also after a kill between writing and restarting it is known what runs with something
older.

HAProxy and keepalived take another list of hosts by a reload, which no client notices. Their hash has two parts, for
what a restart takes and for what a reload takes; what was reloaded is noted below ``/run`` with the unit's
invocation. A load balancer that goes ends before the others forget it, and one that comes begins when they know it: a
keepalived that hears nobody takes the virtual IP.

**What hosts reach** is looked at between the first look and preflight, since only the state that the first look
brings says which members are registered: ``reach_targets`` writes for each host what it has to reach into the
handover, ``reach_from_host`` has it tried and notes what is not reached, and preflight tells it with all else. The
name of the endpoint goes with them while it is new. Where every member is Ready there are no targets, and the second
step is skipped. When members are not ready after joining, ``member_log`` goes the same way.

**Ports** are those of the table, moved by the flags of the document: ``Component.listens`` is where everybody looks.

A host that is lost, or cannot do a step, ends the run for all of them. What follows then is done for each host on its
own: the state is written and the lock let go wherever that is possible, and ``hosts_outcome`` says how far each host
has come.

**Hosts of members** (with ``agent`` among their ``roles`` in the document) are in the same play and get their units
in the same form, and are no part of the control plane. They have the lock and never the state. An action that cannot
do its step there notes why and succeeds (``HostAction``), later steps leave the host alone, and what was noted is the
problem of the members that name it. Only where something is to be taken away, a host that does not answer is an
error. Agents are in no default of ``host_components``: they come after registration, which hands on how each gets to
its member (``Handover.agents``), before their members are waited for. An agent that is to go does so when its member
has left, because it sees to the workloads; that is read off the record of members, so the same step does both. The
identity in the control plane stays in the Secret on the member. A unit cannot mount that, so each start fetches it
(``agent_identity.py``), and ``RuntimeMaxSec`` sees to starts; a timer beside it would need rights over another unit,
or two units that end each other. A kubeconfig can name programs, files and servers, and others may write that Secret:
so it is read line by line, by the one shape that client-go and the installer write, and the host gets certificate and
key of it as PEM. The kubeconfig that names them by their path is a file of ours. A run reads that Secret by the same
function, so what a host refuses is replaced.

**What a unit executes** are its program, libraries, and for agents Python (``NoExecPaths``, from systemd 248 on):
what a process was led to write or to fetch cannot be started.

API servers talk to the etcd member of their own host where there is one, and other components to the API server of
their own host; all but etcd and the API server listen on loopback. The webhook and the aggregated APIs are
``localhost`` to each API server, with that name in their certificates.

etcd on hosts below pods
------------------------

In mode Container ``hosts`` may have the role etcd, and nothing else. Each component has one place, which
``Component.is_on_hosts`` tells of the document: ``pod_components`` are rendered as objects, the others as units, from
the same row. So pods get the addresses of etcd's members from ``components.hosts``; the host cluster holds etcd's
client certificates only.

There is one state and one lock: the Secret and the Lease (``PodsAboveHosts`` is ``InPods`` with hosts). The journal has
only the hosts' lock to let go of, which keeps out a run for another host cluster's control plane of the same name. What
a host is to be is computed from the Secret by each step, so that nothing has to be handed over but what was seen.

The play for pods has the hosts in it, behind ``karmada_control``; every task that is not for hosts is done once. The
order:

::

     install     look (lock hosts) > preflight of both > keys and certificates > journal > etcd on hosts > pods
     uninstall   look (lock hosts) > pods stop > members > units, data and programs of hosts > the rest > state

The journal is opened, and with it owner, authorities and etcd's token are on record, before the first change of a
host; the state goes when hosts are clean. So a run that was killed finds on both sides what it may take for its own.
Leaves of etcd are issued for a host and kept there, those of its clients in Secrets, both by the one ``etcd-ca``.
"""
