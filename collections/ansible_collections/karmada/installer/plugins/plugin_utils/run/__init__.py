# SPDX-License-Identifier: Apache-2.0
"""One action's access to one control plane: facts, state, lock, handover, the bases of actions.

Imports kube, components, document, pki, artifacts, render, and alone of all packages Ansible.

Structure of a run
------------------

``Run`` is one action's access to one instance. It is a ``Facts`` (document, Secrets, sources) with

* a **place** (``place.py``, ``in_pods.py``, ``on_hosts.py``): ``InPods``, ``PodsAboveHosts`` or ``OnHosts``. All that
  depends on where the components run is a method of it, abstract in ``Place``: addresses, certificates, access to the
  API server, what hosts get. ``action.py`` chooses the class by the document. What is asked of one component, in pods
  or on hosts, its row of the table answers. The few steps that have two complete forms, for a host cluster and for
  hosts, use ``in_pods`` (a test lists them, with why); a third way to install would have to be added there, too.
* a **store** (``store.py``), which the place chooses: ``SecretStore`` (Secret and Lease) or ``HostFiles``. It reads and
  writes the state and holds the lock.
* **snapshots** (``snapshot.py``): ``Live`` has the facts of the place at one time, ``Snapshot`` what follows from these
  and from one state. Both are immutable. When the lock was taken or the host cluster has new information, the run
  makes new ones (``look_again``, ``go_on_with``) and uses nothing of the old ones.

State, lock, ownership
----------------------

**State.** The machine that runs Ansible keeps nothing that matters. The Secret ``<name>-installer-state`` holds the
owner UUID, the chosen version, CA keys, service-account and encryption key, etcd's token and data generation, the
journal of the current operation, UIDs of objects created on the host cluster and on each member, the access to each
member, the digests that tags of images first led to, and the last document that was applied completely. Files above
64 KiB are compressed, so that 5,000 members fit into one Secret. A state that cannot be read is an error, never a
reason to start afresh. It is input like a document: anybody who can write it may have written anything, so
``recorded.read_state`` validates each entry against the schema of its kind before use, and words of command lines are
validated again where these are built (``ssh.word``).

The state has a format number and names the version of the collection that wrote it. Older formats stay readable: a
field that they did not have gets its default, one that they had must exist. So the first run that has something to
write adopts the installation of an earlier version; nothing is converted before that. A newer format is refused with
the version to use, because fields unknown to us would be lost. Before the recorded document is compared, it gets the
defaults of the current schema.

**Images.** A digest in the document or in the lock file is part of the reference, for pods and for programs, and the
tag then has no effect. Otherwise the state records the digest that a tag led to, under the whole reference. For
programs the machine with Ansible looks it up, preflight and the download compare it, and it is recorded before the
first host gets the program: the step ``programs`` always precedes the opening of the journal on hosts. A run that is
killed earlier has recorded nothing and installed nothing. For pods, the digest is read from their status at the end
of a run that had something to do, and only reported: rendering it would restart them.

**Lock.** The Lease admits one writing run. It is taken at the first write of a run, renewed while its actions work,
kept from step to step and released at the end. A dead holder is recognised at once on the same machine (none of its
processes lives), and by silence elsewhere. Each attempt of a write checks the lock first, retries included: when the
API server is away for longer than the lock lasts, writing pauses until a renewal has shown that nobody took it. Its
time is measured by a clock that continues while the machine sleeps (``CLOCK_BOOTTIME``).

A run that was suspended as a whole (a paused virtual machine) cannot notice in time that its lock has expired. So the
state is fenced as well: it is applied with the UID and the resourceVersion read under the lock, and a first state with
a resourceVersion that no object has, so that it can only create. A conflict means a lost lock, unless the content is
what this run meant to write: then an earlier attempt succeeded and its answer was lost.

**End of a run.** Actions work in forks of ansible-playbook, each in a session of its own: signals to a terminal, a job
or a process group do not reach them, and ansible-runner cancels by killing the group. So the kernel kills each fork of
ours when the first process ends, and each program that a fork waits for when the fork ends (``PR_SET_PDEATHSIG``). The
first process binds a name in the kernel that every fork inherits: the run is dead only when that name is gone. Ansible
would simply end upon SIGTERM and SIGHUP. The first process handles them like SIGINT: it kills the forks, releases the
lock, removes the private folder, and ends by that signal. The journal stays open, which marks the operation as
interrupted. Locks on plain hosts stay; the next run from the same machine takes them over. Code of a collection gets
into the first process when a strategy loads the class of an action: that sets the handlers (``end.attend``).

Preflight refuses two instances whose names clash (``x`` and ``x-kube`` would both have an
``x-kube-controller-manager``) by looking for objects of others. If two first installs start together, neither has
objects to find: each writes its Lease, then looks for the other's, so that at most one of them continues.

**Namespace.** A namespace that we created, for this instance or for one that has left since, is deleted only when it
contains nothing of others, of whatever kind the cluster has; it stays if the account may not look.

**Ownership.** An object is ours if it has our owner label *and* its UID is on record, or our field manager created it
(a run that was killed between creating and recording). Only such objects are deleted. An object under one of our names
that is not ours is a problem that preflight reports.

Plain hosts
-----------

Mode Binary uses the same engine, table and report. ``playbooks/on_hosts/`` run on the group ``karmada_on_hosts``: the
hosts, and before them ``karmada_control``, where steps run that concern the control plane as a whole.

::

     host_observe ──> Handover ──> OnHosts, HostFiles ──> HostView.tree() ──> _host_tree on the host
     (each host:      (files of    (agreed state)         (desired state      (writes differences,
      state, files,    this run)      │                    of one host)        starts, restarts, checks health)
      facts, lock)                    └─> journal: the state, back to every host

* **An action computes on the controller, a module acts on the host.** ``host_components`` and similar actions render a
  tree from state and document for ``_host_tree``, which knows users, folders, files and units, but nothing of Karmada.
  One step is one round trip to each host.

* **``Handover``** is the private folder of the run (``private_folder``). Observations and the state contain keys, so
  they are never Ansible variables, which callbacks and caches show. The folder is in memory where possible
  (``$XDG_RUNTIME_DIR``, else ``/dev/shm``), else in Ansible's own temporary folder, and is named after the run's first
  process. It is removed at the end of the run; if a run was killed (SIGKILL, power failure), the next one of the same
  user on that machine removes it once the run is known to be dead.

* **The state** is on each host with an API server; the others of the control plane keep its serial and digest. Each
  version of the state names its predecessors. A write reaches all hosts before the recorded change is made, so honest
  hosts differ by one version; ``state_on_hosts.choose`` takes the newest that more than half of the hosts that keep one
  have, or had one version ago, one with an API server among them, and names a host whose state is not of this line. A
  copy is identified by the digest that the controller computes of it. Hosts keep the copy before the last, because
  after a kill that may be the valid one, and refuse to overwrite a state that the run has not seen. Only ``journal``
  brings a state to a host: before the first change with the journal open, after etcd's bootstrap, and at the end, also
  of a failed run.

* **The answer of a host is input** (``host_answer``): it must have the form that our module gives it, or it is refused.

* **The lock** is on every host, taken by the first step and released by the last. It is in ``/run``, because a boot
  ends its holder, and counts seconds since the boot. Every module that changes a host is given the run's name and
  refuses if the lock is another's or gone (``host_lock.working``); while it works it also holds a kernel lock of that
  file, which nobody can take over before the process has ended. ``HostAction.on_host`` passes the name for all actions.

* **Keys of components** are issued for a host and kept there; the next run reads them from it and reissues them only
  for a reason.

* **The state names every host** before anything is put on it. So a host that has left the document is found, also
  after a kill: ``hosts_leaving`` gives its connection, ``add_host`` adds it to the run, and the role ``host_leave``
  works on it by delegation, at the end, because the hosts of a play are fixed when it begins.

* **Ownership**: units carry the owner as ``X-KarmadaOwner``, users in their comment. Those of another owner stay.

* **Files of components** belong to root and are readable for the group of the component's user. So only root can put
  anything into their folders, and where root reads or writes there it follows no link (``O_NOFOLLOW``), whoever owned
  the folder before.

* **Text from a host** (journals, file names, words of ssh) is redacted where it arrives (``HostAction``).

Every play sets ``strategy: linear``, since all of this relies on hosts that proceed together and on tasks that run
once. A configured ``free`` or ``host_pinned`` would restart all hosts at the same time.

The order of an install follows: first files and units, on all hosts at once, and only units that are *down* are
started, because members of etcd become healthy only together, and a start interrupts no client. Units that run with
older settings are restarted in a pass of their own, host after host, each waited for; the first that does not come back
ends the run. A hash of everything that a unit reads tells them apart. It is in the unit's environment and so in that of
its process, which shows outdated processes also after a kill between writing and restarting.

HAProxy and keepalived take a changed list of hosts by a reload, which no client notices. Their hash has two parts, for
what needs a restart and for what needs a reload; the reloaded part is noted below ``/run`` with the unit's invocation.
A load balancer that leaves stops before the others forget it, and a new one starts when they know it: a keepalived
that hears no other takes the virtual IP.

**Reachability from hosts** is checked between the first look and preflight, since only the state, which the first look
brings, says which members are registered: ``reach_targets`` writes the targets of each host into the handover,
``reach_from_host`` tries them and notes those that are not reached, and preflight reports these with all else. A new
name of the endpoint is a target, too. If every member is Ready there are no targets, and the second step is skipped.
When members are not ready after joining, ``member_log`` works in this way.

**Ports** are those of the table, overridden by flags of the document: ``Component.listens`` gives them to all readers.

A host that is lost, or fails a step, ends the run for all hosts. The steps after that work on each host independently:
the state is written and the lock released wherever possible, and ``hosts_outcome`` tells how far each host has come.

**Hosts of members** (with ``agent`` among their ``roles`` in the document) are in the same play and get their units in
the same form, but are no part of the control plane. They have the lock and never the state. An action that fails there
notes the reason and succeeds (``HostAction``), later steps skip the host, and the reason becomes a problem of the
members that name it. Only in removals is an unreachable host an error. Agents are in no default of ``host_components``:
they are installed after registration, which hands on the access of each to its member (``Handover.agents``), and before
their members are waited for. An agent is removed after its member has left, because it cleans up the workloads; the
record of members shows that, so one step does both. The agent's identity in the control plane stays in the Secret on
the member. A unit cannot mount that, so each start fetches it (``agent_identity.py``), and ``RuntimeMaxSec`` causes
starts; a timer would need rights over another unit, or two units that end each other. A kubeconfig can name programs,
files and servers, and others may write that Secret: so it is parsed line by line, only in the form that client-go and
the installer write, and the host gets its certificate and key as PEM. The kubeconfig that names these by path is a file
of ours. A run reads that Secret by the same function, so an identity that a host refuses is replaced.

**Executables of a unit** are its program, libraries, and for agents Python (``NoExecPaths``, from systemd 248 on): a
file that a process was tricked into writing or downloading cannot be executed.

API servers connect to the etcd member of their own host where there is one, and other components to the API server of
their own host; all but etcd and the API server listen on loopback. The webhook and the aggregated APIs are
``localhost`` to each API server, with that name in their certificates.

etcd on hosts below pods
------------------------

In mode Container, ``hosts`` may have the role etcd only. Each component runs either in pods or on hosts, which
``Component.is_on_hosts`` reads from the document: ``pod_components`` are rendered as objects, the others as units, from
the same row. So pods get the addresses of etcd's members from ``components.hosts``; the host cluster holds etcd's
client certificates only.

There is one state and one lock: the Secret and the Lease (``PodsAboveHosts`` is ``InPods`` with hosts). ``journal``
only releases the hosts' lock, which keeps out runs for another host cluster's control plane of the same name. Each step
computes the desired state of a host from the Secret, so only observations are handed over.

The play for pods includes the hosts, after ``karmada_control``; every task that is not for hosts runs once. The order:

::

     install     look (lock hosts) > preflight of both > keys and certificates > journal > etcd on hosts > pods
     uninstall   look (lock hosts) > pods stop > members > units, data and programs of hosts > the rest > state

The journal is opened, and with it owner, authorities and etcd's token are recorded, before the first change of a host;
the state is deleted when hosts are clean. So after a kill the next run recognises its objects and files on both sides.
etcd's own certificates are issued for a host and kept there, those of its clients in Secrets, all by one ``etcd-ca``.
"""
