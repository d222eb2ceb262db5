# SPDX-License-Identifier: Apache-2.0
"""Restore of a control plane from a backup: what is done next, what is held, what members would get.

Imports kube, components, document, pki, render, run, etcd, backup, members.

A restore takes the control plane back in time, and with it everything that it has propagated. So it stops before
anything reaches a member, and a person decides.

The order
---------

A backup is judged, and its name confirmed, before anything is on record (``check``). What follows are steps, each
recorded in the state when it has come to its end; ``plan`` says which is the next, from that record and from what runs.
So a run that was killed goes on by looking, and ``restore_undo`` takes back what was done, until the release::

    BackUp          what is there, if any member answers
    Prepare         the new data of each member beside the old, while etcd serves
    StopWriters     what writes to members, and what creates work for it
    Close           API servers that start from now on are to refuse certificates of agents
    StopServers     every other client of etcd; on hosts then etcd, too
    StopEtcd        if that is still to be done
    Switch          one write of the state: token, generation and members of etcd are the new ones
    StartEtcd       all members together
    Prove           one new cluster ID, equal hashes, counts as in the record of the backup
    StartServers    what they accept is written, then the stages of control_plane; what writes to members stays held
    ProveClosed     each API server is asked with a certificate like those of agents, and answers 401 (``closed``)
    Compare         Works against members: the drift report. Here it stops, in quarantine.

    Open, StartAll, WakeAgents, Let, BackUpAgain                                     the release
    Hold, Open … BackUpAgain; Let, BackUpAgain                                       of a part; of more of it
    TurnBack, StopAll, SwitchBack, StartFormer, OpenAgain, StartAll, WakeAgents     the way back

One that is being taken back, with the former data in its place, may be given up for another restore: the former data
may be the very data that does not start. What it holds is held by the other one.

What is restored is a backup in any case. Where most members of etcd are lost, and one has what no backup has, a backup
is made of that before anything is on record (``source``, ``survivor``): the member sends it, or its data is copied.

What is *held* is part of the state, and every renderer obeys (``Instance.held``). Meanwhile other operations are
refused (``run/restoring.py``), and nothing of a Work is touched: the control plane is exactly the backup.

Of a release of a part (``release``), the rest is held in another way, by the API servers of the control plane: a policy
refuses Works that are not suspended, and their deletion, in namespaces with our label (``held``, ``partial``). That
stands before anything starts. What was released is on record as ``parts``, and only ever grows; when nothing is left,
policy, label and suspension are gone, and it ends as a release of everything does. The label stays until a Work has
what it had before, so a control plane that was backed up while it was held is let go by its own release (``Let``).

Moves
-----

A control plane moves by a hand-over (``hand_over``, at the place that it leaves) and a take-over (``take_over``, where
nothing is yet). The first is a journal of its own, with the steps that stop everything and the final backup between
them. The second makes the keys of that backup the first state, and an empty etcd; then it is a restore from ``Prepare``
on, whose release begins with ``Fence``: members follow this place, and no other one (``members.epoch``).

Data
----

The new data lies in the next ``gen-<n>`` of each volume, so that going there and back is one word of the state. It has
a token of its own, which is the fence against members that could not be stopped, and a revision above any that a client
has seen (``beginning``), with all before it compacted, so that watchers are told. No data is deleted: folders that
nobody uses are on record (``aside``) until a person has them emptied by name (``cleanup``), by a pod in which etcd
itself does it; plain hosts remove them, with those that members have left which were replaced or removed
(``left_data``).

Places
------

Steps, journal and proofs are the same wherever components run; ``means`` do what differs. In pods all of it happens
here. On hosts the begin of a step puts on record what is to be, tasks of the role bring the hosts there, and the end
looks whether they have come there. Each look takes seconds, so while nobody is served several steps share one: etcd
stops after its clients, members tell what they have when they have started, and API servers start before the stages.
Where etcd is on hosts beneath pods (``pods_above_hosts``), its members have the means of hosts, and all else those of
pods; the record is in the host cluster, so that hosts get nothing of it, and pods are gone before members stop.
What is held is stopped and disabled when a host converges, members and API servers are asked by modules beside them,
and a snapshot comes by SSH (``module_utils/host_restore.py``). So is the policy that holds what is not released: tasks
have it written once that is on record, and the look after it says where it is in force.

A snapshot comes into a pod without a shell, ``exec`` and an image of ours (``delivery``): etcd itself receives it, in
the way in which a leader sends its database to a member that has fallen behind. A pod beside each member, on its node
and with its claim, has etcd as a sidecar with an empty folder of its own, listening on loopback only; the port-forward
leads there. It holds back the other container until the file is there, whole: ``etcdutl snapshot restore``, which
checks it.
"""
